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

/// The way to a peer, and the device that it begins at: found, and ready to connect.
///
///     VERBSPP_TRY(route, cm_route::resolve(address, 5s));
///     VERBSPP_TRY(context, route.context());
///     VERBSPP_TRY(domain, protection_domain::allocate(context));
///     VERBSPP_TRY(prepared, domain.build_channel().build());
///     VERBSPP_TRY(met, std::move(route).connect(std::move(prepared), 5s));
///
/// A move-only owner. Thread rule: as a container.
class cm_route {
 public:
  /// Finds the device and the way (`rdma_resolve_addr`, `rdma_resolve_route`).
  /// \errors `not_supported` where the kernel has no connection manager; `not_found` if no RDMA
  /// device has a way to that address, or the device was removed; `timed_out` if the address does
  /// not answer; `busy` if the source's port is in use; `timed_out` and `cancelled` at the limit;
  /// `invalid_input` for no address; `resource_exhausted`
  [[nodiscard]] static result<cm_route> resolve(const cm_address& destination,
                                                const wait_limit& limit,
                                                const cm_route_options& options = {}) noexcept;
  /// For the library.
  explicit cm_route(detail::cm_identifier id) noexcept : id_(std::move(id)) {}

  [[nodiscard]] cm_address local_address() const noexcept { return id_.local_address(); }
  [[nodiscard]] cm_address remote_address() const noexcept { return id_.remote_address(); }
  /// The device, and its port. The context is librdmacm's, which is there as long as the device:
  /// what is made on it may stay. Whoever has opened the device before may use that as well.
  /// \errors `invalid_input` if this was moved from
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }

  /// Connects what was prepared, of RC and on this device. It consumes both: on failure they are
  /// destroyed, and the peer is told.
  /// \errors as `cm_session::advance`; `mismatch` if it was prepared on another device;
  /// `invalid_input` for a channel of UC, or what was moved from; `not_supported` on iWARP
  template <class End>
    requires CmEnd<End>
  [[nodiscard]] result<typename detail::cm_end<End>::outcome> connect(
      End prepared, const wait_limit& limit, const cm_connect_options& options = {}) && noexcept {
    VERBSPP_TRY(session, std::move(*this).start_connect(std::move(prepared), limit, options));
    return std::move(session).run();
  }
  /// The same for an event loop. `options.rejection` has to live as long as the session.
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
  /// Connects a channel that is prepared, by `renew` or at first, where it is. On failure it is not
  /// connected: prepared still if it didn't come to its handshake, broken if that failed, closed if
  /// the peer did not go on afterwards. `renew` prepares it again.
  /// \errors as above; `busy` if it is connected, `not_connected` if it was not renewed
  [[nodiscard]] result<cm_connection> connect(channel& renewed, const wait_limit& limit,
                                              const cm_connect_options& options = {}) && noexcept {
    VERBSPP_TRY(session, std::move(*this).start_connect(renewed, limit, options));
    return std::move(session).run();
  }
  /// The same for an event loop. The channel stays where it is until the session has gone, with
  /// which it is closed unless `finish` has given its connection.
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

/// A route that is being looked for, which an event loop drives as a `cm_session`.
class cm_resolver {
 public:
  /// \errors as `cm_route::resolve`
  [[nodiscard]] static result<cm_resolver> start(const cm_address& destination,
                                                 const wait_limit& limit,
                                                 const cm_route_options& options = {}) noexcept {
    VERBSPP_TRY(resolution, detail::cm_resolution::start(destination, options,
                                                         detail::cm_service::connections, limit));
    return cm_resolver(std::move(resolution));
  }
  /// \returns whether the route is found
  /// \errors as `cm_route::resolve`; later calls give the same
  [[nodiscard]] result<bool> advance() noexcept { return resolution_.advance(); }
  /// \errors `busy` if it is not found yet
  [[nodiscard]] result<cm_route> finish() && noexcept {
    VERBSPP_TRY(id, resolution_.finish());
    return cm_route(std::move(id));
  }
  [[nodiscard]] int file_descriptor() const noexcept { return resolution_.file_descriptor(); }
  [[nodiscard]] wait_limit::time_point deadline() const noexcept { return resolution_.deadline(); }

 private:
  explicit cm_resolver(detail::cm_resolution resolution) noexcept
      : resolution_(std::move(resolution)) {}

  detail::cm_resolution resolution_;
};

}  // namespace verbspp
