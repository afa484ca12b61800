// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/memory/remote_memory.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <type_traits>

namespace verbspp {

/// Rights of a region to which memory windows can be bound.
template <access_flags Rights>
concept BindableToWindows =
    detail::because(Rights.contains(access::window_bind),
                    "this memory region lacks access::window_bind: register it with that right, so "
                    "that memory windows can be bound to it");

/// Rights that a memory window can grant to peers.
template <access_flags Rights>
concept WindowRights = detail::because(!Rights.empty() && access::all_remote.contains(Rights),
                                       "a memory window grants only access::remote_read, "
                                       "remote_write and remote_atomic: name at least one of "
                                       "them, and no other right");

/// For remote write and atomics through a window, the verbs require that the region has local
/// write.
template <access_flags Rights, access_flags RegionRights>
concept WindowRightsOfRegion = detail::because(
    RegionRights.contains(access::local_write) ||
        !Rights.intersects(access::remote_write | access::remote_atomic),
    "access::remote_write and access::remote_atomic through a memory window need a region "
    "with access::local_write");

/// A part of a memory region, with the rights that a memory window bound to it grants.
///
/// Created by `memory_region::window_part`. A plain value that owns nothing: the region must live
/// as long as a window is bound to it.
template <access_flags Rights>
class window_part {
 public:
  static constexpr access_flags rights = Rights;

  /// Creates a part of a region that the library did not register. The caller vouches that the part
  /// lies within the region, and that a window with these rights may be bound to it.
  [[nodiscard]] static window_part from_native(ibv_mr* region, std::uint64_t address,
                                               std::uint64_t length) noexcept
    requires WindowRights<Rights>
  {
    return window_part(
        {.mr = region, .addr = address, .length = length, .mw_access_flags = Rights.bits});
  }

  [[nodiscard]] std::uint64_t address() const noexcept { return native_.addr; }
  /// The length in bytes.
  [[nodiscard]] std::uint64_t length() const noexcept { return native_.length; }
  [[nodiscard]] const ibv_mw_bind_info& native() const noexcept { return native_; }
  /// Used by the library only: returns the handle that peers can use once a window with this rkey
  /// is bound to the part.
  [[nodiscard]] remote_memory<Rights> remote(remote_key rkey) const noexcept {
    return {address(), length(), rkey};
  }

 private:
  explicit window_part(const ibv_mw_bind_info& native) noexcept : native_(native) {}

  ibv_mw_bind_info native_;
};

static_assert(std::is_trivially_copyable_v<window_part<access::remote_read>>);

}  // namespace verbspp
