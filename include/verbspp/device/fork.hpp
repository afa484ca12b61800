// SPDX-License-Identifier: Apache-2.0
/// \file
/// Notes for programs that call fork().
///
/// *Memory.* fork() shares pages between parent and child until one of them writes, and the writer
/// gets a new page. If the writer is the parent, the device continues to use the old page, so it
/// reads and writes data that is no longer in the parent's memory. Linux 5.12 and newer copy pinned
/// pages at fork, so programs need not do anything. On older kernels, `initialize_fork` withholds
/// registered pages from the child, which then must not access any data on them. This affects whole
/// pages: memory from malloc shares its pages with other data, but the memory of a
/// `registered_buffer` does not. A child that calls exec immediately does not need those pages.
/// Creating threads is not affected.
///
/// *Objects.* The child inherits the program's objects, but the objects of the device belong to the
/// parent. The child must not use them, and should not destroy them either, because that may
/// destroy the parent's objects. It should call exec or `_exit`, or the program should open the
/// device after the fork.
#pragma once

#include <verbspp/base/result.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp {

/// Says whether registered memory survives a fork(), with the values of `ibv_fork_status`.
enum class fork_safety : std::uint8_t {
  disabled = 0,  ///< no: call `initialize_fork` before memory is registered
  enabled = 1,   ///< yes, but the child does not have the registered pages
  unneeded = 2,  ///< yes: the kernel copies registered pages at fork
};

[[nodiscard]] const char* to_string(fork_safety safety) noexcept;

/// Asks libibverbs whether registered memory survives a fork() (`ibv_is_fork_initialized`).
/// \errors `not_supported` if the library was built with a libibverbs older than 1.13 (rdma-core
/// 35), which cannot report it
[[nodiscard]] result<fork_safety> fork_status() noexcept;

/// Makes registered memory survive a fork() on kernels that do not ensure this themselves
/// (`ibv_fork_init`). On such kernels, registration then takes longer. Call this function before
/// registering any memory or creating any queue: the memory of a queue counts as registered memory,
/// too. Setting the environment variable RDMAV_FORK_SAFE=1 has the same effect.
/// \errors on such kernels: `invalid_input` if memory was already registered, or a queue was
/// already created; `not_supported`, `resource_exhausted`
[[nodiscard]] result<void> initialize_fork() noexcept;

}  // namespace verbspp
