// SPDX-License-Identifier: Apache-2.0
/// \file
/// Workarounds for the points in which Linux's software driver, rdma_rxe, and its provider in
/// rdma-core deviate from the verbs specification.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

[[nodiscard]] bool is_rxe(const ibv_device_attr& device) noexcept;

/// Makes the polling sessions of an extended queue correct, unless that was done before.
///
/// Before version 55 of rdma-core, the provider advances by one completion in `ibv_next_poll`, even
/// past the last completion, and again in `ibv_end_poll`. So after a session that has read all
/// completions, the provider reports completions that never existed. Before version 59, it may also
/// unlock the queue twice at the end of such a session. Sessions that read a single completion are
/// correct, so each session is split into sessions that read one completion.
void mend_rxe_sessions(ibv_cq_ex& queue) noexcept;

/// True if requests may invalidate memory windows that peers may invalidate as well.
///
/// If a window that is no longer bound is invalidated, rxe treats it as if it were bound, and the
/// kernel dereferences a null pointer (`rxe_do_invalidate_mw`). This affects all versions of Linux
/// from 5.14, the first with memory windows, up to the versions of 2025. Deallocating the window is
/// safe in either state.
[[nodiscard]] bool may_invalidate_windows(const ibv_device_attr& device) noexcept;

/// True if a queue pair with this ACK retry count retransmits its requests without end.
///
/// rxe retries forever if the count is 7 (`COMPST_ERROR_RETRY`), but the specification gives that
/// meaning only to the RNR retry count. So a request to a peer that no longer exists never fails.
[[nodiscard]] bool retries_without_end(const ibv_device_attr& device, std::uint8_t count) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
