// SPDX-License-Identifier: Apache-2.0
/// \file
/// The NUMA node that a device is attached to. Threads on this node access the device faster than
/// other threads do, and the device accesses the memory of this node faster than other memory.
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

/// A NUMA node of this machine, as numbered by the kernel.
using numa_node = bounded<detail::numa_node_traits>;

/// The behaviour of `bind_this_thread_near` if the thread cannot be bound to the device's node.
enum class numa_binding : std::uint8_t {
  strict,              ///< an error is returned
  as_far_as_possible,  ///< the result is false, and the thread keeps its processors
};

/// Returns the node that a device is attached to, as the kernel reports it (/sys/class/infiniband).
/// The result is empty if the kernel reports no node, for instance because the machine has only one
/// node. softverbs devices have no node, unless their configuration gives them one (`numa-node`).
/// \errors `driver` if the kernel's file cannot be parsed; the errors of reading a file;
/// `invalid_input` if the device has no name, or was moved from
[[nodiscard]] result<std::optional<numa_node>> numa_node_of(const device& one) noexcept;
/// Like the function above, but for the device that a context has opened.
[[nodiscard]] result<std::optional<numa_node>> numa_node_of(const context& opened) noexcept;

/// Restricts the calling thread to the processors of a device's node (`sched_setaffinity`), as far
/// as the cpuset of the process contains them. Threads that the calling thread starts later inherit
/// the restriction. As a consequence, memory that a restricted thread is the first to touch is
/// usually allocated on that node, too.
/// \returns true if the thread is bound; always true with `numa_binding::strict`
/// \errors with `numa_binding::strict`: `not_supported` if the device belongs to no node,
/// `invalid_input` if the node has no processors, or the cpuset contains none of them, other errors
/// of `sched_setaffinity`; in any case the errors of `numa_node_of`, those of reading the kernel's
/// list of processors, and `driver` if the list is missing or cannot be parsed
[[nodiscard]] result<bool> bind_this_thread_near(const device& one, numa_binding how) noexcept;
/// Like the function above, but for the device that a context has opened.
[[nodiscard]] result<bool> bind_this_thread_near(const context& opened, numa_binding how) noexcept;

namespace detail {
// These are like the functions above, but for a device name. `sysfs` is the directory where sysfs
// is mounted, usually "/sys".
[[nodiscard]] result<std::optional<numa_node>> numa_node_of(const char* sysfs,
                                                            const char* name) noexcept;
[[nodiscard]] result<bool> bind_this_thread_near(const char* sysfs, const char* name,
                                                 numa_binding how) noexcept;
}  // namespace detail

}  // namespace verbspp
