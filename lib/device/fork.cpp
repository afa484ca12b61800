// SPDX-License-Identifier: Apache-2.0
#include <verbspp/device/fork.hpp>

#include <cerrno>

namespace verbspp {

const char* to_string(fork_safety safety) noexcept {
  switch (safety) {
    case fork_safety::disabled:
      return "disabled";
    case fork_safety::enabled:
      return "enabled";
    case fork_safety::unneeded:
      return "unneeded";
  }
  return "unknown";
}

result<fork_safety> fork_status() noexcept {
#if defined(VERBSPP_HAS_IBV_IS_FORK_INITIALIZED)
  static_assert(static_cast<int>(fork_safety::disabled) == IBV_FORK_DISABLED &&
                static_cast<int>(fork_safety::enabled) == IBV_FORK_ENABLED &&
                static_cast<int>(fork_safety::unneeded) == IBV_FORK_UNNEEDED);
  return static_cast<fork_safety>(ibv_is_fork_initialized());
#else
  return error(error_kind::not_supported, "ibv_is_fork_initialized",
               "verbspp was built with a libibverbs older than 1.13 (rdma-core 35); call "
               "initialize_fork to be sure");
#endif
}

result<void> initialize_fork() noexcept {
  const int errnum = detail::errno_of(ibv_fork_init());
  if (errnum != 0)
    return error::from_errno(errnum, "ibv_fork_init",
                             errnum == EINVAL ? "memory was already registered, or a queue "
                                                "created: call initialize_fork before either"
                                              : nullptr);
  return success();
}

}  // namespace verbspp
