// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/devices.hpp"
#include "connections/identifier.hpp"
#include "verbs/export.hpp"
#include "verbs/next_library.hpp"

#include <cerrno>
#include <functional>
#include <new>
#include <type_traits>

namespace softverbs {

/// Converts an errno value into the result of librdmacm's functions: 0, or -1 with errno set.
inline int outcome(int error) noexcept {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

/// Calls librdmacm's function `name`, which this library's function hides.
template <typename Result, typename... Parameters>
Result pass_on(Result (*)(Parameters...), const char* name,
               std::type_identity_t<Parameters>... arguments) {
  if (void* const found = next_symbol(name))
    return reinterpret_cast<Result (*)(Parameters...)>(found)(arguments...);
  errno = ENOSYS;
  if constexpr (std::is_pointer_v<Result>)
    return nullptr;
  else if constexpr (!std::is_void_v<Result>)
    return static_cast<Result>(-1);
}

/// Calls `work`, and passes the errno value that it returns to `outcome`; if it throws
/// std::bad_alloc, passes ENOMEM.
template <typename Work>
int guarded(Work work) {
  try {
    return outcome(work());
  } catch (const std::bad_alloc&) {
    return outcome(ENOMEM);
  }
}
/// Calls `guarded` with the lock of connections held.
template <typename Work>
int locked(Work work) {
  const connections_lock held;
  return guarded(work);
}

/// Creates an identifier. Returns 0 or an errno value. If `channel` is null, the identifier gets
/// its own channel.
int make_identifier(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                    rdma_port_space space, ibv_qp_type type);

/// Waits for the program to acknowledge the identifier's events, until `is_done` returns true. Must
/// be called without the lock.
void wait_for_acknowledgements(identifier& id, const std::function<bool()>& is_done);

/// If the identifier has its own channel, waits for the end of the operation that was started on
/// the identifier, and returns the result: 0, or -1 with errno set. Otherwise, returns 0
/// immediately.
int complete(identifier& id);

/// Registers the handlers that close, in a forked child, the sockets of the parent's identifiers,
/// reservations and channels. Must be called without the lock.
void prepare_for_fork();

/// Creates an event channel. Returns null with errno on failure.
rdma_event_channel* make_channel();

}  // namespace softverbs

/// If the process has no soft devices, calls librdmacm's function `name`, and returns its result
/// from the function in which the macro is used.
#define SOFTVERBS_PASS_ON(name, ...)      \
  if (!::softverbs::serves_connections()) \
  return ::softverbs::pass_on(&name, #name __VA_OPT__(, ) __VA_ARGS__)
