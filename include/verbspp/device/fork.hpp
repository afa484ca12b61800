// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a program that calls fork() has to know.
///
/// *Memory.* fork() shares pages between parent and child until one of them writes, and it is the
/// writer who gets a new page: if that is the parent, the device goes on with the old one, and what
/// it writes or reads is no longer the parent's memory. Linux 5.12 and newer copy pinned pages at
/// fork, and there is nothing to do; on older kernels `initialize_fork` has registered pages left
/// out of the child, which then must not touch anything on them. That goes by whole pages: memory
/// from malloc shares its pages with other data, that of a `registered_buffer` does not. Children
/// that call exec at once are safe in any case, as are threads.
///
/// *Objects.* The child inherits the program's objects, but the device's belong to the parent: it
/// must not use them, and should not destroy them either, since that may destroy those of the
/// parent. So leave it by exec or `_exit`, or open the device after the fork.
#pragma once

#include <verbspp/base/result.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp {

/// Whether registered memory survives a fork(); the values are those of `ibv_fork_status`.
enum class fork_safety : std::uint8_t {
  disabled = 0,  ///< it does not: call `initialize_fork` first of all
  enabled = 1,   ///< it does, but the child does not have the registered pages
  unneeded = 2,  ///< it does: the kernel copies them
};

[[nodiscard]] const char* to_string(fork_safety safety) noexcept;

/// Asks libibverbs (`ibv_is_fork_initialized`).
/// \errors `not_supported` if libibverbs is older than 1.13 (rdma-core 35), which cannot tell
[[nodiscard]] result<fork_safety> fork_status() noexcept;

/// Makes registered memory survive a fork() on kernels that don't by themselves (`ibv_fork_init`);
/// makes registering slower there. Call it before anything is registered; the environment variable
/// RDMAV_FORK_SAFE=1 does the same.
/// \errors `invalid_input` if memory was registered before, `not_supported`, `driver`
[[nodiscard]] result<void> initialize_fork() noexcept;

}  // namespace verbspp
