// SPDX-License-Identifier: Apache-2.0
#include "cm/listening.hpp"
#include "memory/usable.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/cm/cm_datagram.hpp>
#include <verbspp/cm/detail/cm_resolution.hpp>

#include <rdma/rdma_cma.h>

#include <algorithm>
#include <cerrno>

namespace verbspp {

static_assert(cm_datagram_key.value() == RDMA_UDP_QKEY);

namespace {

/// Returns the private data of an event as `Data`. Some links pad the data, so it is cut to the
/// maximum size of `Data`.
template <class Data>
Data front_of(const detail::cm_event_data& event) noexcept {
  const auto bytes = event.private_data();
  return Data::from(bytes.first(std::min(bytes.size(), Data::max_size))).assume_value();
}

result<address_handle> handle_of(const ibv_ah_attr& path,
                                 const protection_domain& domain) noexcept {
  constexpr const char* creating = "ibv_create_ah";
  VERBSPP_TRYV(detail::check_usable(creating, domain));
  ibv_ah_attr of_c = path;
  errno = 0;
  ibv_ah* const made = ibv_create_ah(domain.below().native_handle(), &of_c);
  if (made == nullptr) return error::from_errno(errno != 0 ? errno : EIO, creating);
  detail::trace(creating, made);
  return address_handle::from_native(domain, made, ownership::taken);
}

}  // namespace

result<address_handle> cm_datagram_peer::address(const protection_domain& domain) const noexcept {
  return handle_of(path, domain);
}

result<cm_datagram_route> cm_datagram_route::resolve(const cm_address& destination,
                                                     const wait_limit& limit,
                                                     const cm_route_options& options) noexcept {
  VERBSPP_TRY(resolution, detail::cm_resolution::start(destination, options,
                                                       detail::cm_service::datagrams, limit));
  VERBSPP_TRY(id, resolution.run());
  return cm_datagram_route(std::move(id));
}

result<cm_datagram_peer> cm_datagram_route::look_up(const wait_limit& limit,
                                                    const cm_lookup_data& data) && noexcept {
  constexpr const char* step = "rdma_connect";
  if (id_.is_empty()) return detail::cm_moved_from(step);
  detail::cm_identifier id = std::move(id_);
  rdma_conn_param parameters{};
  parameters.private_data = data.bytes().data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.bytes().size());
  VERBSPP_TRYV(id.connect(parameters));
  VERBSPP_TRY(event, id.wait_event(limit));
  if (!event)
    return limit.failure(step,
                         "no server has answered the lookup of the service: check that its host is "
                         "up (with ping), that no firewall blocks UDP port 4791 (RoCE v2), and "
                         "that the server answers lookups, or allow more time");
  if (event->event != cm_event::established) return detail::cm_failure(*event, step);
  return cm_datagram_peer{.path = event->path,
                          .number = queue_pair_number::assume(event->queue_pair),
                          .key = queue_key::assume(event->qkey),
                          .data = front_of<cm_answer_data>(*event)};
}

cm_datagram_request::cm_datagram_request(detail::cm_identifier id,
                                         const detail::cm_event_data& event) noexcept
    : id_(std::move(id)), data_(front_of<cm_lookup_data>(event)) {}

result<void> cm_datagram_request::answer_with(const ibv_qp* serving, queue_key key,
                                              const cm_answer_data& data) noexcept {
  constexpr const char* step = "rdma_accept";
  if (id_.is_empty() || serving == nullptr) return detail::cm_moved_from(step);
  if (key != cm_datagram_key)
    return error(error_kind::mismatch, step,
                 "the queue pair's queue key is not cm_datagram_key, which the connection manager "
                 "reports to all peers: build the queue pair with .qkey(cm_datagram_key)");
  detail::cm_identifier id = std::move(id_);
  rdma_conn_param parameters{};
  parameters.private_data = data.bytes().data();
  parameters.private_data_len = static_cast<std::uint8_t>(data.bytes().size());
  parameters.qp_num = serving->qp_num;
  return id.accept(parameters);
}

result<void> cm_datagram_request::reject() && noexcept {
  if (id_.is_empty()) return detail::cm_moved_from("rdma_reject");
  detail::cm_identifier id = std::move(id_);
  return id.reject({});
}

result<cm_datagram_listener> cm_datagram_listener::open(
    const cm_address& address, const cm_listener_options& options) noexcept {
  VERBSPP_TRY(id, detail::listen_at(address, options, detail::cm_service::datagrams));
  return cm_datagram_listener(std::move(id));
}

result<std::optional<cm_datagram_request>> cm_datagram_listener::poll() noexcept {
  return detail::try_accept<cm_datagram_request>(id_);
}

result<cm_datagram_request> cm_datagram_listener::accept(const wait_limit& limit) noexcept {
  return detail::accept<cm_datagram_request>(id_, limit);
}

result<cm_multicast> cm_multicast::join(const cm_address& group, const cm_address& local,
                                        const wait_limit& limit) noexcept {
  constexpr const char* step = "rdma_join_multicast";
  if (group.is_empty() || local.is_empty())
    return error(error_kind::invalid_input, step,
                 "the group address or the local address is empty: joining requires both");
  VERBSPP_TRY(id, detail::cm_identifier::create(detail::cm_service::datagrams));
  VERBSPP_TRYV(id.bind(local));
  VERBSPP_TRYV(id.join(group));
  cm_multicast made(std::move(id));
  made.address_ = group;
  VERBSPP_TRY(event, made.id_.wait_event(limit));
  if (!event)
    return limit.failure(step,
                         "the multicast group has not been joined yet: allow more time or, on "
                         "InfiniBand, check the subnet manager");
  if (event->event != cm_event::multicast_join) return detail::cm_failure(*event, step);
  made.path_ = event->path;
  made.key_ = queue_key::assume(event->qkey);
  return made;
}

cm_multicast& cm_multicast::operator=(cm_multicast&& other) noexcept {
  if (this == &other) return *this;
  leave();
  id_ = std::move(other.id_);
  address_ = other.address_;
  path_ = other.path_;
  key_ = other.key_;
  return *this;
}

void cm_multicast::leave() noexcept {
  if (id_.is_empty()) return;
  const auto left = id_.leave(address_);
  if (!left.has_value())
    detail::report_release(left.assume_error().native_errno(), "rdma_leave_multicast");
}

lid cm_multicast::multicast_lid() const noexcept { return lid::assume(path_.dlid); }

result<address_handle> cm_multicast::address(const protection_domain& domain) const noexcept {
  if (id_.is_empty()) return detail::cm_moved_from("ibv_create_ah");
  return handle_of(path_, domain);
}

}  // namespace verbspp
