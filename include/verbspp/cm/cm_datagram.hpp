// SPDX-License-Identifier: Apache-2.0
/// \file
/// Datagrams by IP address: whom to send them to, and the groups that they are sent to.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>
#include <verbspp/cm/private_data.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/qp/queue_pair.hpp>
#include <verbspp/work/address_handle.hpp>

#include <infiniband/verbs.h>

#include <optional>
#include <utility>

namespace verbspp {

/// The queue key of all datagrams of the connection manager's (`RDMA_UDP_QKEY`): queue pairs that
/// serve, or join a group, are built with it.
inline constexpr queue_key cm_datagram_key = 0x01234567;

/// A queue pair that serves at an address: where datagrams go.
///
/// A plain value.
struct cm_datagram_peer {
  ibv_ah_attr path{};
  queue_pair_number number{};
  queue_key key{};
  cm_answer_data data{};  ///< what came with the answer

  /// The way to it; `destination(number, key)` of it is where to send.
  /// \errors as `address_handle::create`
  [[nodiscard]] result<address_handle> address(const protection_domain& domain) const noexcept;
};

/// The way to a datagram service, and the device that it begins at.
///
/// A move-only owner. Thread rule: as a container.
class cm_datagram_route {
 public:
  /// \errors as `cm_route::resolve`
  [[nodiscard]] static result<cm_datagram_route> resolve(
      const cm_address& destination, const wait_limit& limit,
      const cm_route_options& options = {}) noexcept;

  /// The device, and its port, as of a `cm_route`.
  /// \errors `invalid_input` if this was moved from
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }
  /// Asks which queue pair serves there. It consumes the route.
  /// \errors `not_connected` if nobody serves there, or who does rejects; `timed_out` and
  /// `cancelled` at the limit; `not_found` if the device was removed; `invalid_input` if this was
  /// moved from
  [[nodiscard]] result<cm_datagram_peer> look_up(const wait_limit& limit,
                                                 const cm_lookup_data& data = {}) && noexcept;

 private:
  explicit cm_datagram_route(detail::cm_identifier id) noexcept : id_(std::move(id)) {}
  detail::cm_identifier id_;
};

/// Somebody who asks for a datagram service: to be answered or rejected.
///
/// A move-only owner; one that goes undecided lets the other wait until its limit. Thread rule: as
/// a container.
class cm_datagram_request {
 public:
  /// For the library.
  cm_datagram_request(detail::cm_identifier id, const detail::cm_event_data& event) noexcept;

  [[nodiscard]] const cm_lookup_data& data() const noexcept { return data_; }
  [[nodiscard]] cm_address remote_address() const noexcept { return id_.remote_address(); }
  /// \errors `invalid_input` if this was moved from
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }

  /// Says that this queue pair serves, which many may be told.
  /// \errors `mismatch` if its queue key is not `cm_datagram_key`; `invalid_input` if one of the
  /// two was moved from; those of the kernel
  template <receive_queue_kind Receives, posting_interface Posting>
  [[nodiscard]] result<void> answer(
      const queue_pair<transport::ud, queue_pair_state::ready_to_send, Receives, Posting>& serving,
      const cm_answer_data& data = {}) && noexcept {
    return answer_with(serving.native_handle(), serving.endpoint().qkey, data);
  }
  /// \errors `invalid_input` if this was moved from; those of the kernel
  result<void> reject() && noexcept;

 private:
  [[nodiscard]] result<void> answer_with(const ibv_qp* serving, queue_key key,
                                         const cm_answer_data& data) noexcept;

  detail::cm_identifier id_;
  cm_lookup_data data_{};
};

/// Waits for those who ask for a datagram service.
///
/// A move-only owner. Thread rule: as a container.
class cm_datagram_listener {
 public:
  /// \errors as `cm_listener::open`
  [[nodiscard]] static result<cm_datagram_listener> open(
      const cm_address& address, const cm_listener_options& options = {}) noexcept;
  /// The next one that asks.
  /// \errors as `cm_listener::accept`
  [[nodiscard]] result<cm_datagram_request> accept(const wait_limit& limit) noexcept;
  /// The same without waiting: nothing if nobody is there.
  [[nodiscard]] result<std::optional<cm_datagram_request>> try_accept() noexcept;

  /// Where it listens, with the number of the port that was free.
  [[nodiscard]] cm_address address() const noexcept { return id_.local_address(); }
  /// For epoll and poll: readable if somebody is there. -1 if this was moved from.
  [[nodiscard]] int file_descriptor() const noexcept { return id_.file_descriptor(); }

 private:
  explicit cm_datagram_listener(detail::cm_identifier id) noexcept : id_(std::move(id)) {}
  detail::cm_identifier id_;
};

/// A multicast group that a port of this host has joined, until this goes.
///
/// Queue pairs get its datagrams when they have joined it as well,
/// `queue_pair.join_multicast(group(), multicast_lid())`; sending needs no more than `address`.
/// A move-only owner. Thread rule: as a container.
class cm_multicast {
 public:
  /// Joins by the device that has the local address (`rdma_join_multicast`).
  /// \errors `not_found` if no device has it; `timed_out` and `cancelled` at the limit;
  /// `invalid_input` for an address that is none of a group; those of the kernel
  [[nodiscard]] static result<cm_multicast> join(const cm_address& group, const cm_address& local,
                                                 const wait_limit& limit) noexcept;
  cm_multicast(cm_multicast&&) noexcept = default;
  cm_multicast& operator=(cm_multicast&& other) noexcept;
  ~cm_multicast() { leave(); }

  [[nodiscard]] gid group() const noexcept { return gid::from_native(path_.grh.dgid); }
  /// 0 on Ethernet.
  [[nodiscard]] lid multicast_lid() const noexcept;
  [[nodiscard]] queue_key key() const noexcept { return key_; }
  /// The device, and its port, as of a `cm_route`.
  /// \errors `invalid_input` if this was moved from
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }
  /// The way to the group; `destination_group(key())` of it is where to send.
  /// \errors as `address_handle::create`
  [[nodiscard]] result<address_handle> address(const protection_domain& domain) const noexcept;

 private:
  explicit cm_multicast(detail::cm_identifier id) noexcept : id_(std::move(id)) {}
  void leave() noexcept;

  detail::cm_identifier id_;
  cm_address address_{};
  ibv_ah_attr path_{};
  queue_key key_{};
};

}  // namespace verbspp
