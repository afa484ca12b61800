// SPDX-License-Identifier: Apache-2.0
/// \file
/// What Linux' own software driver, rdma_rxe, and its provider in rdma-core do otherwise than the
/// verbs say, and what makes up for it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

[[nodiscard]] bool is_rxe(const ibv_device_attr& device) noexcept;

/// Makes the polling sessions of an extended queue count right, unless that was done before.
///
/// That of rdma-core's provider, as of 2025, steps over a completion in `ibv_next_poll`, also where
/// that was the last one, and once more in `ibv_end_poll`, which the verbs ask for: so after each
/// session that takes everything it tells of completions that never were. Sessions of a single
/// completion do right; so here one as the library has them becomes several of these.
void mend_rxe_sessions(ibv_cq_ex& queue) noexcept;

/// Whether requests may invalidate memory windows that peers may invalidate as well.
///
/// rxe's of Linux 5.14, the first that has windows, to those of 2025 take a window that is bound to
/// nothing any more for one that is bound, and the kernel follows a null pointer
/// (`rxe_do_invalidate_mw`). Deallocating the window is safe in either state.
[[nodiscard]] bool may_invalidate_windows(const ibv_device_attr& device) noexcept;

/// Whether a queue pair with this ACK retry count repeats its requests without end.
///
/// rxe takes 7 for that (`COMPST_ERROR_RETRY`), as the architecture says of RNR retries only: a
/// request to a peer that is gone never fails.
[[nodiscard]] bool retries_without_end(const ibv_device_attr& device, std::uint8_t count) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
