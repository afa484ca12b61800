// SPDX-License-Identifier: Apache-2.0
#include "cm/listening.hpp"
#include <verbspp/cm/cm_listener.hpp>

namespace verbspp {

namespace {

constexpr int longest_backlog = 1024;

}  // namespace

result<detail::cm_identifier> detail::listen_at(const cm_address& address,
                                                const cm_listener_options& options,
                                                cm_service service) noexcept {
  constexpr const char* operation = "listen";
  if (address.is_empty())
    return error(error_kind::invalid_input, operation,
                 "the address to listen on is empty: for all addresses, use cm_address::any(port)");
  if (options.backlog < 1 || options.backlog > longest_backlog)
    return error::out_of_range(operation, "backlog (1..1024)", options.backlog);
  VERBSPP_TRY(id, cm_identifier::create(service));
  if (options.reuse_address) VERBSPP_TRYV(id.set_reuse_address());
  if (options.only_ipv6) VERBSPP_TRYV(id.set_only_ipv6());
  VERBSPP_TRYV(id.bind(address));
  VERBSPP_TRYV(id.listen(options.backlog));
  return id;
}

result<cm_listener> cm_listener::open(const cm_address& address,
                                      const cm_listener_options& options) noexcept {
  VERBSPP_TRY(id, detail::listen_at(address, options, detail::cm_service::connections));
  return cm_listener(std::move(id));
}

result<std::optional<cm_request>> cm_listener::poll() noexcept {
  return detail::try_accept<cm_request>(id_);
}

result<cm_request> cm_listener::accept(const wait_limit& limit) noexcept {
  return detail::accept<cm_request>(id_, limit);
}

}  // namespace verbspp
