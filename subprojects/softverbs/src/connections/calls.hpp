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

/// What the functions of librdmacm give: 0, or -1 and errno.
inline int outcome(int error) noexcept {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

/// Calls the function of librdmacm that the one of this library hides.
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

/// What a function gives that makes an errno, and may run out of memory.
template <typename Work>
int guarded(Work work) {
  try {
    return outcome(work());
  } catch (const std::bad_alloc&) {
    return outcome(ENOMEM);
  }
}
/// The same, under the lock.
template <typename Work>
int locked(Work work) {
  const connections_lock held;
  return guarded(work);
}

/// 0 or an errno. Without a channel it makes one.
int make_identifier(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                    rdma_port_space space, ibv_qp_type type);

/// Waits until the program has done with what it was told of. Not under the lock.
void wait_for_acknowledgements(identifier& id, const std::function<bool()>& is_done);

/// Waits for what a call has begun, if the identifier has no channel of the program's.
int complete(identifier& id);

/// Registers the handlers that close the parent's sockets in a child of fork. Not under the lock.
void prepare_for_fork();

/// Null with errno.
rdma_event_channel* make_channel();

}  // namespace softverbs

/// Returns what librdmacm says, in a process without soft devices.
#define SOFTVERBS_PASS_ON(name, ...)      \
  if (!::softverbs::serves_connections()) \
  return ::softverbs::pass_on(&name, #name __VA_OPT__(, ) __VA_ARGS__)
