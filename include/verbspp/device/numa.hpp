// SPDX-License-Identifier: Apache-2.0
/// \file
/// Near which memory and processors a device sits: a thread that works on the device's own NUMA
/// node reaches both faster.
#pragma once

#include <verbspp/base/bounded.hpp>
#include <verbspp/base/result.hpp>

#include <cstdint>
#include <optional>

namespace verbspp {

class context;
class device;

namespace detail {
struct numa_node_traits {
  using value_type = std::uint16_t;
  static constexpr value_type minimum = 0, maximum = 1023;
  static constexpr const char* name = "NUMA node (0..1023)";
};
}  // namespace detail

/// A NUMA node of this machine, as the kernel counts them.
using numa_node = bounded<detail::numa_node_traits>;

/// What to do where a thread cannot be bound to a device's node.
enum class numa_binding : std::uint8_t {
  strict,              ///< it is an error
  as_far_as_possible,  ///< the thread stays where it is
};

/// The node that a device is attached to, as the kernel tells (/sys/class/infiniband); empty if it
/// tells none, as on machines of one node, or for a device that is none of the kernel's.
/// \errors `driver` if the kernel's answer makes no sense; those of reading a file; `invalid_input`
/// if the device was moved from
[[nodiscard]] result<std::optional<numa_node>> numa_node_of(const device& one) noexcept;
/// \errors as for a device
[[nodiscard]] result<std::optional<numa_node>> numa_node_of(const context& opened) noexcept;

/// Lets the calling thread run on nothing but the processors of a device's node
/// (`sched_setaffinity`), as far as they are allowed to it; threads that it starts from then on
/// inherit that. Memory that the thread touches first comes from that node then, too.
/// \returns whether the thread is bound; with `numa_binding::strict` always true
/// \errors with `numa_binding::strict`: `not_supported` if the device belongs to no node,
/// `invalid_input` if none of the node's processors is allowed to the thread; in any case those of
/// `numa_node_of`, and `driver` if the kernel's list of processors makes no sense
[[nodiscard]] result<bool> bind_this_thread_near(const device& one, numa_binding how) noexcept;
/// \errors as for a device
[[nodiscard]] result<bool> bind_this_thread_near(const context& opened, numa_binding how) noexcept;

namespace detail {
// The same for a device's name; `sysfs` is where the kernel tells of devices, usually "/sys".
[[nodiscard]] result<std::optional<numa_node>> numa_node_of(const char* sysfs,
                                                            const char* name) noexcept;
[[nodiscard]] result<bool> bind_this_thread_near(const char* sysfs, const char* name,
                                                 numa_binding how) noexcept;
}  // namespace detail

}  // namespace verbspp
