// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/cm_session.hpp>
#include <verbspp/cm/detail/cm_handshake.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>
#include <verbspp/cm/private_data.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/port.hpp>

#include <cstdint>
#include <utility>

namespace verbspp {

/// A connection request, which the program can accept or reject.
///
/// A move-only owner. Destroying a request that was not accepted rejects it. Thread rule: as for a
/// standard container.
class cm_request {
 public:
  /// Used by the library only.
  cm_request(detail::cm_identifier id, const detail::cm_event_data& event) noexcept;

  /// The private data of the request.
  [[nodiscard]] const cm_request_data& data() const noexcept { return data_; }
  [[nodiscard]] cm_address local_address() const noexcept { return id_.local_address(); }
  [[nodiscard]] cm_address remote_address() const noexcept { return id_.remote_address(); }
  /// The device at which the request arrived. librdmacm owns the context, which exists as long as
  /// the device does, so objects that are created on it may outlive the request. Instead of this
  /// context, the program may use one that it has opened itself on the same device.
  /// \errors `invalid_input` if this object was moved from; `resource_exhausted`
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }
  /// The maximum number of reads and atomics of this end's memory that the peer wants to have in
  /// flight. The handshake uses the smaller of this number and this end's own limit.
  [[nodiscard]] std::uint8_t reads_as_initiator() const noexcept { return responder_resources_; }
  /// The maximum number of reads and atomics of the peer's memory that the peer can answer at the
  /// same time. As above, the handshake uses the smaller limit.
  [[nodiscard]] std::uint8_t reads_as_target() const noexcept { return initiator_depth_; }

  /// Connects a prepared RC channel or queue pair of this device, and waits until the peer is
  /// connected. Consumes the request and the prepared object; on failure both are destroyed, and
  /// the peer is notified.
  /// \errors as `cm_session::poll`; `mismatch` if the object was prepared on a different device;
  /// `invalid_input` for a UC channel, or if the request or the object was moved from;
  /// `not_supported` on iWARP
  template <class End>
    requires CmEnd<End>
  [[nodiscard]] result<typename detail::cm_end<End>::outcome> accept(
      End prepared, const wait_limit& limit, const cm_accept_options& options = {}) && noexcept {
    VERBSPP_TRY(session, std::move(*this).start_accept(std::move(prepared), limit, options));
    return std::move(session).run();
  }
  /// Starts to accept the request, and returns a session that an event loop can drive.
  /// \errors as `accept`
  template <class End>
    requires CmEnd<End>
  [[nodiscard]] result<cm_session<End>> start_accept(
      End prepared, const wait_limit& limit, const cm_accept_options& options = {}) && noexcept {
    VERBSPP_TRY(handshake,
                detail::cm_handshake::accept(std::move(id_), prepared.native_handle(),
                                             prepared.endpoint(), parameters(options), limit));
    return cm_session<End>(std::move(handshake), std::move(prepared));
  }
  /// Connects a prepared channel in place. The channel may be new or renewed. On failure, the
  /// channel is still prepared if its handshake did not begin, broken if the handshake failed, and
  /// closed if the peer did not complete the connection after the handshake. `renew` prepares it
  /// again.
  /// \errors those of the overload to which a prepared object is passed by value; `busy` if the
  /// channel is connected; `not_connected` if it is empty, or was not renewed after its last
  /// connection
  [[nodiscard]] result<cm_connection> accept(channel& renewed, const wait_limit& limit,
                                             const cm_accept_options& options = {}) && noexcept {
    VERBSPP_TRY(session, std::move(*this).start_accept(renewed, limit, options));
    return std::move(session).run();
  }
  /// Starts to accept the request for a channel that is connected in place, and returns a session
  /// that an event loop can drive. The channel must be neither moved nor destroyed while the
  /// session exists. If the session is destroyed after the handshake of the channel, but before
  /// `finish` has returned the connection, its destructor closes the channel.
  [[nodiscard]] result<cm_session<detail::cm_channel_in_place>> start_accept(
      channel& renewed, const wait_limit& limit,
      const cm_accept_options& options = {}) && noexcept {
    VERBSPP_TRYV(detail::check_prepared(renewed));
    return std::move(*this).start_accept(detail::cm_channel_in_place(renewed), limit, options);
  }
  /// Rejects the request.
  /// \errors `invalid_input` if this object was moved from; the errors of the kernel, for instance
  /// if the peer has left
  result<void> reject(const cm_rejection_data& data = {}) && noexcept;

 private:
  [[nodiscard]] detail::cm_parameters parameters(const cm_accept_options& options) const noexcept;

  detail::cm_identifier id_;
  cm_request_data data_{};
  std::uint8_t responder_resources_;
  std::uint8_t initiator_depth_;
};

}  // namespace verbspp
