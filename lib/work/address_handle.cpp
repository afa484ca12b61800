// SPDX-License-Identifier: Apache-2.0
#include "memory/usable.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/work/address_handle.hpp>
#include <verbspp/work/datagram.hpp>

#include <cerrno>
#include <cstdio>
#include <ostream>

namespace verbspp {

namespace {

constexpr const char* creating_handle = "ibv_create_ah";

const char* usual_cause(int errnum, const ibv_ah_attr& address) noexcept {
  switch (errnum) {
    case ETIMEDOUT:
    case ENETUNREACH:
    case EHOSTUNREACH:
      return "usually the peer's GID does not resolve: check that its address is reachable from "
             "this port (ping the IP address behind the GID)";
    case EINVAL:
    case ENODATA:
      return address.is_global != 0
                 ? "usually the port's GID table has no valid entry at the GID index of the path"
                 : "usually the port requires a global route: set the .route of the path";
    default:
      return nullptr;
  }
}

}  // namespace

result<address_handle> address_handle::create(const class protection_domain& domain,
                                              ibv_ah_attr address, const char* operation) noexcept {
  errno = 0;
  class protection_domain below = domain.below();
  ibv_ah* const created = ibv_create_ah(below.native_handle(), &address);
  if (created == nullptr) return error::from_errno(errno, operation, usual_cause(errno, address));
  detail::trace("ibv_create_ah", created);
  return address_handle(created, std::move(below), ownership::taken);
}

result<address_handle> address_handle::create(const class protection_domain& domain,
                                              port_number port, const path& way) noexcept {
  VERBSPP_TRYV(detail::check_usable(creating_handle, domain));
  VERBSPP_TRY(attributes, domain.context().query_port(port));
  VERBSPP_TRYV(detail::check_path(way, attributes.link_layer(), creating_handle));
  return create(domain, way.native(port), creating_handle);
}

result<address_handle> address_handle::create_reply(const class protection_domain& domain,
                                                    port_number port,
                                                    const received_datagram& datagram) noexcept {
  constexpr const char* operation = "ibv_init_ah_from_wc";
  VERBSPP_TRYV(detail::check_usable(operation, domain));
  VERBSPP_TRY(attributes, domain.context().query_port(port));
  if (attributes.link_layer() == link_layer::ethernet && !datagram.has_global_route())
    return error(
        error_kind::invalid_input, operation,
        "the memory does not contain the datagram's global route header: pass "
        "received_datagram::from the completion of a UD receive, and at least the first 40 "
        "bytes of its memory");
  ibv_wc completion = datagram.native();
  // If the memory lacks the 40 bytes for the header, the completion must not claim that there is
  // one.
  if (!datagram.has_global_route()) completion.wc_flags &= ~unsigned{IBV_WC_GRH};
  ibv_ah_attr address{};
  errno = 0;  // ibv_init_ah_from_wc returns -1, and does not promise to set errno
  const int errnum = detail::errno_of(
      ibv_init_ah_from_wc(domain.context().native_handle(), port.value(), &completion,
                          reinterpret_cast<ibv_grh*>(datagram.header().data()), &address));
  if (errnum != 0)
    return error::from_errno(
        errnum, operation,
        "usually the datagram's destination GID is not one of this port's: use the port that "
        "received the datagram or, if the destination is a multicast group, call "
        "address_handle::create with the datagram's source_address()");
  return create(domain, address, creating_handle);
}

result<address_handle> address_handle::from_native(const class protection_domain& domain,
                                                   ibv_ah* native, ownership whose) noexcept {
  constexpr const char* operation = "address_handle::from_native";
  VERBSPP_TRYV(detail::check_usable(operation, domain));
  if (native == nullptr) return error(error_kind::invalid_input, operation, "the ibv_ah is null");
  if (native->pd != domain.native_handle() && native->pd != domain.below().native_handle())
    return error(error_kind::invalid_input, operation,
                 "the address handle belongs to another protection domain: pass the one in which "
                 "it was created");
  return address_handle(native, domain.below(), whose);
}

address_handle::~address_handle() {
  if (native_ != nullptr && whose_ == ownership::taken)
    detail::report_destroy(native_, detail::errno_of(ibv_destroy_ah(native_)), "ibv_destroy_ah");
}

std::ostream& operator<<(std::ostream& out, const address_handle& handle) {
  if (handle.native_handle() == nullptr) return out << "address handle, moved from";
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "address handle 0x%x",
                handle.native_handle()->handle);
  return out << number.data() << ", device " << handle.protection_domain().context().device_name();
}

}  // namespace verbspp
