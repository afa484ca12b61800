// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/cm_session.hpp>
#include <verbspp/cm/detail/cm_handshake.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>
#include <verbspp/cm/detail/cm_resolution.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/port.hpp>

#include <utility>

namespace verbspp {

/// A resolved route to a peer, and the local device at which it starts. It is ready to connect.
///
///     VERBSPP_TRY(route, cm_route::resolve(address, 5s));
///     VERBSPP_TRY(context, route.context());
///     VERBSPP_TRY(domain, protection_domain::allocate(context));
///     VERBSPP_TRY(prepared, domain.build_channel().build());
///     VERBSPP_TRY(met, std::move(route).connect(std::move(prepared), 5s));
///
/// A move-only owner. Thread rule: as for a standard container.
class cm_route {
 public:
  /// Finds the route to an address, and the device at which the route starts (`rdma_resolve_addr`,
  /// `rdma_resolve_route`).
  /// \errors `not_supported` if the kernel has no connection manager; `not_found` if no RDMA device
  /// has a route to the address, or the device was removed, and usually if no RDMA device has the
  /// source address, another identifier uses the source port on all addresses, or no source port is
  /// free; otherwise `busy` if the source port is in use; `timed_out` if the address or the subnet
  /// manager does not answer, or the limit is reached; `cancelled` if a stop was requested;
  /// `not_connected` if the address moved to another device; `invalid_input` if the address is
  /// empty; `resource_exhausted`; other errors of the kernel
  [[nodiscard]] static result<cm_route> resolve(const cm_address& destination,
                                                const wait_limit& limit,
                                                const cm_route_options& options = {}) noexcept;
  /// Used by the library only.
  explicit cm_route(detail::cm_identifier id) noexcept : id_(std::move(id)) {}

  [[nodiscard]] cm_address local_address() const noexcept { return id_.local_address(); }
  [[nodiscard]] cm_address remote_address() const noexcept { return id_.remote_address(); }
  /// The device at which the route starts. librdmacm owns the context, which exists as long as the
  /// device does, so objects that are created on it may outlive the route. Instead of this context,
  /// the program may use one that it has opened itself on the same device.
  /// \errors `invalid_input` if this object was moved from; `resource_exhausted`
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }

  /// Connects a prepared RC channel or queue pair of this device. Consumes the route and the
  /// prepared object; on failure both are destroyed, and the peer is notified if the request was
  /// sent.
  /// \errors as `cm_session::poll`; `mismatch` if the object was prepared on a different device;
  /// `invalid_input` for a UC channel, or if the route or the object was moved from;
  /// `not_supported` on iWARP
  template <class End>
    requires CmEnd<End>
  [[nodiscard]] result<typename detail::cm_end<End>::outcome> connect(
      End prepared, const wait_limit& limit, const cm_connect_options& options = {}) && noexcept {
    VERBSPP_TRY(session, std::move(*this).start_connect(std::move(prepared), limit, options));
    return std::move(session).run();
  }
  /// Starts to connect, and returns a session that an event loop can drive. `options.rejection`
  /// must stay valid as long as the session exists.
  /// \errors as `connect`
  template <class End>
    requires CmEnd<End>
  [[nodiscard]] result<cm_session<End>> start_connect(
      End prepared, const wait_limit& limit, const cm_connect_options& options = {}) && noexcept {
    VERBSPP_TRY(handshake,
                detail::cm_handshake::connect(std::move(id_), prepared.native_handle(),
                                              prepared.endpoint(), parameters(options), limit));
    return cm_session<End>(std::move(handshake), std::move(prepared), options.rejection);
  }
  /// Connects a prepared channel in place. The channel may be new or renewed. On failure, the
  /// channel is still prepared if its handshake did not begin, broken if the handshake failed, and
  /// closed if the connection could not be established after the handshake. Call `renew` to prepare
  /// the channel again.
  /// \errors as for the overload that takes a prepared object; `busy` if the channel is connected;
  /// `not_connected` if it is empty, or was not renewed after its last connection
  [[nodiscard]] result<cm_connection> connect(channel& renewed, const wait_limit& limit,
                                              const cm_connect_options& options = {}) && noexcept {
    VERBSPP_TRY(session, std::move(*this).start_connect(renewed, limit, options));
    return std::move(session).run();
  }
  /// Starts to connect the channel in place, and returns a session that an event loop can drive.
  /// The channel must be neither moved nor destroyed while the session exists. If the session is
  /// destroyed after the handshake of the channel, but before `finish` has returned the connection,
  /// its destructor closes the channel.
  [[nodiscard]] result<cm_session<detail::cm_channel_in_place>> start_connect(
      channel& renewed, const wait_limit& limit,
      const cm_connect_options& options = {}) && noexcept {
    VERBSPP_TRYV(detail::check_prepared(renewed));
    return std::move(*this).start_connect(detail::cm_channel_in_place(renewed), limit, options);
  }

 private:
  [[nodiscard]] static detail::cm_parameters parameters(const cm_connect_options& options) noexcept;

  detail::cm_identifier id_;
};

/// A resolution of a route that an event loop can drive: the loop calls `poll` when the
/// descriptor is readable, and at the deadline. A move-only owner. Thread rule: as for a standard
/// container.
class cm_resolver {
 public:
  /// Starts the resolution.
  /// \errors as `cm_route::resolve`
  [[nodiscard]] static result<cm_resolver> start(const cm_address& destination,
                                                 const wait_limit& limit,
                                                 const cm_route_options& options = {}) noexcept {
    VERBSPP_TRY(resolution, detail::cm_resolution::start(destination, options,
                                                         detail::cm_service::connections, limit));
    return cm_resolver(std::move(resolution));
  }
  /// Proceeds as far as possible without waiting.
  /// \returns true once the route has been found
  /// \errors as `cm_route::resolve`; later calls return the same error
  [[nodiscard]] result<bool> poll() noexcept { return resolution_.poll(); }
  /// Returns the route, once `poll` has returned true.
  /// \errors `busy` if the route has not been found yet; `invalid_input` if it has already been
  /// returned; as `poll`
  [[nodiscard]] result<cm_route> finish() && noexcept {
    VERBSPP_TRY(id, resolution_.finish());
    return cm_route(std::move(id));
  }
  [[nodiscard]] int file_descriptor() const noexcept { return resolution_.file_descriptor(); }
  /// Always returns false, because the descriptor needs no notification request (see
  /// `EventSource`).
  [[nodiscard]] result<bool> request_notification() noexcept { return false; }
  [[nodiscard]] wait_limit::time_point deadline() const noexcept { return resolution_.deadline(); }

 private:
  explicit cm_resolver(detail::cm_resolution resolution) noexcept
      : resolution_(std::move(resolution)) {}

  detail::cm_resolution resolution_;
};

}  // namespace verbspp
