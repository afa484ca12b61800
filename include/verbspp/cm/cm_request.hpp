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

/// Somebody who wants to connect: to be accepted or rejected.
///
/// A move-only owner; one that goes undecided rejects. Thread rule: as a container.
class cm_request {
 public:
  /// For the library.
  cm_request(detail::cm_identifier id, const detail::cm_event_data& event) noexcept;

  /// What came with the request.
  [[nodiscard]] const cm_request_data& data() const noexcept { return data_; }
  [[nodiscard]] cm_address local_address() const noexcept { return id_.local_address(); }
  [[nodiscard]] cm_address remote_address() const noexcept { return id_.remote_address(); }
  /// The device that the request came to, and its port. The context is librdmacm's, which is there
  /// as long as the device: what is made on it may stay. Whoever has opened the device before may
  /// use that as well.
  /// \errors `invalid_input` if this was moved from
  [[nodiscard]] result<verbspp::context> context() const noexcept { return id_.device_context(); }
  [[nodiscard]] port_number port() const noexcept { return id_.port(); }
  /// The reads and atomics that the peer would like to have outstanding here, and that it can
  /// answer at once. The handshake takes what both ends can do.
  [[nodiscard]] std::uint8_t reads_as_initiator() const noexcept { return responder_resources_; }
  [[nodiscard]] std::uint8_t reads_as_target() const noexcept { return initiator_depth_; }

  /// Connects what was prepared, of RC and on this device, and waits until the peer is connected.
  /// It consumes both: on failure they are destroyed, and the peer is told.
  /// \errors as `cm_session::advance`; `mismatch` if it was prepared on another device;
  /// `invalid_input` for a channel of UC, or what was moved from; `not_supported` on iWARP
  template <class End>
    requires CmEnd<End>
  [[nodiscard]] result<typename detail::cm_end<End>::outcome> accept(
      End prepared, const wait_limit& limit, const cm_accept_options& options = {}) && noexcept {
    VERBSPP_TRY(session, std::move(*this).start_accept(std::move(prepared), limit, options));
    return std::move(session).run();
  }
  /// The same for an event loop.
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
  /// Connects a channel that is prepared, by `renew` or at first, where it is. On failure it is not
  /// connected: prepared still if it didn't come to its handshake, broken if that failed, closed if
  /// the peer did not go on afterwards. `renew` prepares it again.
  /// \errors as above; `busy` if it is connected, `not_connected` if it was not renewed
  [[nodiscard]] result<cm_connection> accept(channel& renewed, const wait_limit& limit,
                                             const cm_accept_options& options = {}) && noexcept {
    VERBSPP_TRY(session, std::move(*this).start_accept(renewed, limit, options));
    return std::move(session).run();
  }
  /// The same for an event loop. The channel stays where it is until the session has gone, with
  /// which it is closed unless `finish` has given its connection.
  [[nodiscard]] result<cm_session<detail::cm_channel_in_place>> start_accept(
      channel& renewed, const wait_limit& limit,
      const cm_accept_options& options = {}) && noexcept {
    VERBSPP_TRYV(detail::check_prepared(renewed));
    return std::move(*this).start_accept(detail::cm_channel_in_place(renewed), limit, options);
  }
  /// \errors `invalid_input` if this was moved from; those of the kernel, if the peer has gone
  result<void> reject(const cm_rejection_data& data = {}) && noexcept;

 private:
  [[nodiscard]] detail::cm_parameters parameters(const cm_accept_options& options) const noexcept;

  detail::cm_identifier id_;
  cm_request_data data_{};
  std::uint8_t responder_resources_;
  std::uint8_t initiator_depth_;
};

}  // namespace verbspp
