// SPDX-License-Identifier: Apache-2.0
/// \file
/// Deviations of Linux's software driver, rdma_rxe, and its provider in rdma-core from the verbs,
/// and workarounds for them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

[[nodiscard]] bool is_rxe(const ibv_device_attr& device) noexcept;

/// Makes the polling sessions of an extended queue correct, unless that was done before.
///
/// The provider in rdma-core, as of 2025, advances by one completion in `ibv_next_poll`, even past
/// the last completion. It advances again in `ibv_end_poll`, with which each session has to end. So
/// after each session that reads all completions, the provider reports completions that never
/// existed. Sessions with a single completion are correct, so a session of the library is split
/// into several such sessions.
void mend_rxe_sessions(ibv_cq_ex& queue) noexcept;

/// True if requests may invalidate memory windows that peers may invalidate, too.
///
/// From Linux 5.14, the first version with windows, to the versions of 2025, rxe treats a window
/// that is no longer bound as if it were bound, and the kernel dereferences a null pointer
/// (`rxe_do_invalidate_mw`). Deallocating the window is safe in either state.
[[nodiscard]] bool may_invalidate_windows(const ibv_device_attr& device) noexcept;

/// True if a queue pair with this ACK retry count retransmits its requests without end.
///
/// rxe retries forever if the count is 7 (`COMPST_ERROR_RETRY`), which the architecture specifies
/// only for RNR retries. So a request to a peer that no longer exists never fails.
[[nodiscard]] bool retries_without_end(const ibv_device_attr& device, std::uint8_t count) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
