// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/calls/detail/lanes.hpp>
#include <verbspp/channel/lease.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/memory/work_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace verbspp {

namespace detail {

template <class Memory>
inline constexpr bool is_window_part = false;
template <access_flags Rights>
inline constexpr bool is_window_part<window_part<Rights>> = true;

/// A registered or shared buffer, or a part of one. Its type has the member `rights`.
template <class Memory>
concept IsRegistered =
    (enable_work_memory<Memory> || HasKeep<Memory>) && requires { Memory::rights; };

/// The way in which memory with these rights is leased.
template <access_flags OfMemory>
inline constexpr lease_by way_to_lend =
    OfMemory.contains(access::window_bind) ? lease_by::window : lease_by::registration;

template <class Memory, access_flags Rights>
[[nodiscard]] constexpr bool may_lend() noexcept {
  using object = std::remove_cvref_t<Memory>;
  if constexpr (is_window_part<object>)
    return object::rights == Rights;
  else if constexpr (IsRegistered<object>)
    return LeasableWith<object::rights, Rights, way_to_lend<object::rights>> &&
           (!Rights.contains(access::remote_write) || HasKeep<object> ||
            !std::is_const_v<std::remove_reference_t<Memory>>);
  else if constexpr (RegistrableMemory<Memory>)
    return !Rights.contains(access::remote_write) || WritableAsFarAs<Memory, access::local_write>;
  else
    return false;
}

/// Returns the request for a lease of this memory.
template <access_flags Rights, class Memory>
[[nodiscard]] lease_request lend(Memory& memory) noexcept {
  using object = std::remove_cvref_t<Memory>;
  if constexpr (is_window_part<object>) {
    return {.registered = memory.native().mr,
            .address = memory.address(),
            .memory = nullptr,
            .length = memory.length(),
            .rights = Rights,
            .by = lease_by::window};
  } else if constexpr (IsRegistered<object>) {
    lease_request all = whole_of<Rights>(memory, way_to_lend<object::rights>);
    // A moved-from buffer has the length 0, and no lease is requested for 0 bytes. With the length
    // 1, a lease is requested, and fails.
    if (all.registered == nullptr) all.length = 1;
    return all;
  } else {
    const std::span<std::byte> all = bytes_of(memory);
    return {.registered = nullptr,
            .address = reinterpret_cast<std::uintptr_t>(all.data()),
            .memory = all.data(),
            .length = all.size(),
            .rights = Rights,
            .by = lease_by::registration};
  }
}

/// Like `lend`, for shared memory, which the lease keeps.
template <access_flags Rights, SharedMemory Memory>
[[nodiscard]] loan share(const Memory& memory, std::uint32_t request_size) noexcept {
  return {.what = lend<Rights>(memory),
          .shared = &memory,
          .keep = [](const void* of) noexcept { return static_cast<const Memory*>(of)->keep(); },
          .request_size = request_size};
}

}  // namespace detail

/// Memory that a call can lend with these rights.
///
/// Small memory is sent with the messages of the call (`caller_options::sent_size`), except for a
/// `window_part`, whose bytes the program might be unable to access. Other memory is lent over a
/// lane:
///
/// A buffer with `access::window_bind`, or a part of it, is lent through a memory window, and so is
/// a `window_part` of a region. One work request binds the window, and another one revokes the
/// access, usually without a system call. On a device without memory windows, such a buffer is
/// instead registered once more, for the time of the call. Other buffers, and ranges of the
/// program's own memory, such as a `std::vector` or a `std::span`, are copied if they are small
/// (`caller_options::copied_size`) and the program lends them with `call`; otherwise, they are
/// registered for the time of the call. Registering and deregistering are system calls, which take
/// longer for more memory.
template <class Memory, access_flags Rights>
concept Lendable = detail::because(
    detail::may_lend<Memory, Rights>(),
    "a call can lend a registered or shared buffer, or a part of one; "
    "region.window_part<rights>(...) with exactly the rights in the method's `lends`; or a "
    "contiguous range of trivially copyable objects that is not a temporary container. Memory that "
    "the service may write must not be constant, and a buffer then needs access::local_write");

}  // namespace verbspp
