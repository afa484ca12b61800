// SPDX-License-Identifier: Apache-2.0
/// \file
/// Datagrams to IP addresses: lookups of the queue pairs that receive them, and multicast groups.
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

/// The queue key that the connection manager uses for all datagrams (`RDMA_UDP_QKEY`). A queue pair
/// that answers lookups, or that joins a group, must be built with this key.
inline constexpr queue_key cm_datagram_key = 0x01234567;

/// A destination for datagrams: the queue pair of a service, and the path to it.
///
/// A plain value.
struct cm_datagram_peer {
  ibv_ah_attr path{};
  queue_pair_number number{};
  queue_key key{};
  cm_answer_data data{};  ///< the private data of the answer

  /// Creates an address handle for this peer. Send datagrams to the handle's `destination(number,
  /// key)`.
  /// \errors as `address_handle::create`
  [[nodiscard]] result<address_handle> address(const protection_domain& domain) const noexcept;
};

/// A route to a datagram service, and the local device at which it starts.
///
/// A move-only owner. Thread rule: as for a standard container.
class cm_datagram_route {
 public:
  /// Finds the route to the address of a service, and the device at which the route starts.
  /// \errors as `cm_route::resolve`
  [[nodiscard]] static result<cm_datagram_route> resolve(
      const cm_address& destination, const wait_limit& limit,
      const cm_route_options& options = {}) noexcept;

  /// The device at which the route starts. librdmacm owns the context, which exists as long as the
  /// device does.
  /// \errors `invalid_input` if this object was moved from; `resource_exhausted`
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }
  /// Asks the host at the destination address for the queue pair of the service. Consumes the
  /// route.
  /// \errors `not_connected` if no service listens there, it rejected the lookup, or the address
  /// moved to another device; `timed_out` if the host does not answer, or the limit is reached;
  /// `cancelled` if a stop was requested; `not_found` if the device was removed; `invalid_input` if
  /// this object was moved from; the errors of the kernel
  [[nodiscard]] result<cm_datagram_peer> look_up(const wait_limit& limit,
                                                 const cm_lookup_data& data = {}) && noexcept;

 private:
  explicit cm_datagram_route(detail::cm_identifier id) noexcept : id_(std::move(id)) {}
  detail::cm_identifier id_;
};

/// A lookup of a datagram service, which the program can answer or reject.
///
/// A move-only owner. Destroying a request that was not answered rejects it. Thread rule: as for a
/// standard container.
class cm_datagram_request {
 public:
  /// Used by the library only.
  cm_datagram_request(detail::cm_identifier id, const detail::cm_event_data& event) noexcept;

  [[nodiscard]] const cm_lookup_data& data() const noexcept { return data_; }
  [[nodiscard]] cm_address remote_address() const noexcept { return id_.remote_address(); }
  /// The device at which the lookup arrived. librdmacm owns the context, which exists as long as
  /// the device does.
  /// \errors `invalid_input` if this object was moved from; `resource_exhausted`
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }

  /// Answers the lookup with the queue pair `serving`. One queue pair may answer any number of
  /// lookups.
  /// \errors `mismatch` if its queue key is not `cm_datagram_key`; `not_connected` if the kernel
  /// knows that the peer gave up; `invalid_input` if the request or the queue pair was moved from;
  /// the errors of the kernel
  template <receive_queue_kind Receives, posting_interface Posting>
  [[nodiscard]] result<void> answer(
      const queue_pair<transport::ud, queue_pair_state::ready_to_send, Receives, Posting>& serving,
      const cm_answer_data& data = {}) && noexcept {
    return answer_with(serving.native_handle(), serving.endpoint().qkey, data);
  }
  /// Rejects the lookup.
  /// \errors `invalid_input` if this object was moved from; the errors of the kernel
  result<void> reject() && noexcept;

 private:
  [[nodiscard]] result<void> answer_with(const ibv_qp* serving, queue_key key,
                                         const cm_answer_data& data) noexcept;

  detail::cm_identifier id_;
  cm_lookup_data data_{};
};

/// Listens for lookups of a datagram service.
///
/// A move-only owner. Thread rule: as for a standard container.
class cm_datagram_listener {
 public:
  /// Listens on one address of this host, or on all of them (`cm_address::any`).
  /// \errors as `cm_listener::open`
  [[nodiscard]] static result<cm_datagram_listener> open(
      const cm_address& address, const cm_listener_options& options = {}) noexcept;
  /// Waits for the next lookup.
  /// \errors as `cm_listener::accept`
  [[nodiscard]] result<cm_datagram_request> accept(const wait_limit& limit) noexcept;
  /// Returns the next lookup without waiting, or nothing if none is pending.
  /// \errors as `accept`
  [[nodiscard]] result<std::optional<cm_datagram_request>> poll() noexcept;

  /// The address on which this listener listens. If port 0 was requested, this contains the port
  /// that was assigned.
  [[nodiscard]] cm_address address() const noexcept { return id_.local_address(); }
  /// The descriptor for epoll and poll, which is readable while a lookup is pending; -1 if this
  /// object was moved from.
  [[nodiscard]] int file_descriptor() const noexcept { return id_.file_descriptor(); }
  /// Always returns false, because the descriptor needs no notification request (see
  /// `EventSource`).
  [[nodiscard]] result<bool> request_notification() noexcept { return false; }
  /// Returns the maximum time point, because an event loop needs no timeout for this object.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return (wait_limit::time_point::max)();
  }

 private:
  explicit cm_datagram_listener(detail::cm_identifier id) noexcept : id_(std::move(id)) {}
  detail::cm_identifier id_;
};

/// A multicast group that a port of this host has joined. The destructor leaves the group.
///
/// To receive the group's datagrams, a queue pair has to join as well:
/// `queue_pair.join_multicast(group(), multicast_lid())`. To send to the group, a program needs
/// only the address handle that `address` creates. A move-only owner. Thread rule: as for a
/// standard container.
class cm_multicast {
 public:
  /// Joins the group on the device that has the local address (`rdma_join_multicast`).
  /// \errors `not_supported` if the kernel has no connection manager; `not_found` if no device has
  /// the local address, another identifier uses the local port on all addresses, no port is free,
  /// or the device was removed; otherwise `busy` if the local port is in use; `not_connected` if
  /// the address moved to another device; `timed_out` and `cancelled` when the limit is reached;
  /// `invalid_input` if an address is empty; the errors of the kernel
  [[nodiscard]] static result<cm_multicast> join(const cm_address& group, const cm_address& local,
                                                 const wait_limit& limit) noexcept;
  cm_multicast(cm_multicast&&) noexcept = default;
  cm_multicast& operator=(cm_multicast&& other) noexcept;
  ~cm_multicast() { leave(); }

  [[nodiscard]] gid group() const noexcept { return gid::from_native(path_.grh.dgid); }
  /// The multicast LID; 0 on Ethernet.
  [[nodiscard]] lid multicast_lid() const noexcept;
  [[nodiscard]] queue_key key() const noexcept { return key_; }
  /// The device whose port has joined the group. librdmacm owns the context, which exists as long
  /// as the device does.
  /// \errors `invalid_input` if this object was moved from; `resource_exhausted`
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }
  /// Creates an address handle for the group. Send datagrams to the handle's
  /// `destination_group(key())`.
  /// \errors as `address_handle::create`; `invalid_input` if this object was moved from
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
