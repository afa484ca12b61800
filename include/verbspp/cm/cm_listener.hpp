// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/cm/cm_address.hpp>
#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/cm_request.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>

#include <optional>
#include <utility>

namespace verbspp {

/// Listens for connection requests to an IP address.
///
///     VERBSPP_TRY(listener, cm_listener::open(cm_address::any(7174)));
///     VERBSPP_TRY(request, listener.accept(30s));
///     VERBSPP_TRY(context, request.context());
///     VERBSPP_TRY(domain, protection_domain::allocate(context));
///     VERBSPP_TRY(prepared, domain.build_channel().build());
///     VERBSPP_TRY(met, std::move(request).accept(std::move(prepared), 5s));
///
/// A move-only owner. Destroying a listener rejects the pending requests, but requests that it has
/// already returned stay valid. Thread rule: as for a standard container.
class cm_listener {
 public:
  /// Listens on one address of this host, or on all of them (`cm_address::any`).
  /// \errors `not_supported` if the kernel has no connection manager; `not_found` if no RDMA device
  /// has the address or, for a single address, usually if another identifier uses the port on all
  /// addresses, or port 0 was requested and no port is free; otherwise `busy` if the port is in
  /// use, or no port is free; `invalid_input` if the address is empty, or the backlog is out of
  /// range; `permission`; `resource_exhausted`; other errors of the kernel
  [[nodiscard]] static result<cm_listener> open(const cm_address& address,
                                                const cm_listener_options& options = {}) noexcept;

  /// Waits for the next connection request. If the peer that sent it has given up in the meantime,
  /// the `accept` of that request fails.
  /// \errors `timed_out` and `cancelled` when the limit is reached; `resource_exhausted` if no
  /// descriptor is left for the request, which is then rejected; `not_found` if the device was
  /// removed; `invalid_input` if this object was moved from; other errors of the kernel
  [[nodiscard]] result<cm_request> accept(const wait_limit& limit) noexcept;
  /// Returns the next connection request without waiting, or nothing if none is pending.
  /// \errors as `accept`
  [[nodiscard]] result<std::optional<cm_request>> poll() noexcept;

  /// The address on which this listener listens. If port 0 was requested, this contains the port
  /// that was assigned.
  [[nodiscard]] cm_address address() const noexcept { return id_.local_address(); }
  /// The descriptor for epoll and poll, which is readable while a request is pending; -1 if this
  /// object was moved from.
  [[nodiscard]] int file_descriptor() const noexcept { return id_.file_descriptor(); }
  /// Always returns false, because the descriptor needs no notification request (see
  /// `EventSource`).
  [[nodiscard]] result<bool> request_notification() noexcept { return false; }
  /// Returns the maximum time point, because an event loop needs no timeout for this object.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept {
    return (wait_limit::time_point::max)();
  }
  [[nodiscard]] rdma_cm_id* native_handle() const noexcept { return id_.native(); }

 private:
  explicit cm_listener(detail::cm_identifier id) noexcept : id_(std::move(id)) {}

  detail::cm_identifier id_;
};

}  // namespace verbspp
