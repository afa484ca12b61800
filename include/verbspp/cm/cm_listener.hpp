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

/// Waits for those who connect by IP address.
///
///     VERBSPP_TRY(listener, cm_listener::open(cm_address::any(7174)));
///     VERBSPP_TRY(request, listener.accept(30s));
///     VERBSPP_TRY(context, request.context());
///     VERBSPP_TRY(domain, protection_domain::allocate(context));
///     VERBSPP_TRY(prepared, domain.build_channel().build());
///     VERBSPP_TRY(met, std::move(request).accept(std::move(prepared), 5s));
///
/// A move-only owner. When it goes, who was not taken from it is rejected; what was taken stays.
/// Thread rule: as a container.
class cm_listener {
 public:
  /// Listens at that address of this host's, or at all: `cm_address::any`. One that is no RDMA
  /// device's is refused.
  /// \errors `not_supported` where the kernel has no connection manager; `not_found` for an address
  /// that no RDMA device has; `busy` if somebody listens there already; `invalid_input` for no
  /// address, or a backlog out of range; `permission`; `resource_exhausted`
  [[nodiscard]] static result<cm_listener> open(const cm_address& address,
                                                const cm_listener_options& options = {}) noexcept;

  /// The next one that wants to connect. One that went meanwhile shows when it is accepted.
  /// \errors `timed_out` and `cancelled` at the limit; `resource_exhausted` if there is no
  /// descriptor left for it, and it is rejected; `invalid_input` if this was moved from
  [[nodiscard]] result<cm_request> accept(const wait_limit& limit) noexcept;
  /// The same without waiting: nothing if nobody is there.
  [[nodiscard]] result<std::optional<cm_request>> try_accept() noexcept;

  /// Where it listens, with the number of the port that was free.
  [[nodiscard]] cm_address address() const noexcept { return id_.local_address(); }
  /// For epoll and poll: readable if somebody is there. -1 if this was moved from.
  [[nodiscard]] int file_descriptor() const noexcept { return id_.file_descriptor(); }
  [[nodiscard]] rdma_cm_id* native_handle() const noexcept { return id_.native(); }

 private:
  explicit cm_listener(detail::cm_identifier id) noexcept : id_(std::move(id)) {}

  detail::cm_identifier id_;
};

}  // namespace verbspp
