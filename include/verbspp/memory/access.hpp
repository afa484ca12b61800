// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/flags.hpp>

#include <infiniband/verbs.h>

#include <iosfwd>

namespace verbspp {

/// The rights of this side's device and of peers to access registered memory, and two options of a
/// registration. The enumerators have the values of `ibv_access_flags`. This side's device may
/// always read the memory. Peers access the memory through a queue pair, whose rights must permit
/// the access as well.
enum class access_flag : unsigned {
  local_write = IBV_ACCESS_LOCAL_WRITE,  ///< the device may write received, read or fetched data
  remote_write = IBV_ACCESS_REMOTE_WRITE,
  remote_read = IBV_ACCESS_REMOTE_READ,
  remote_atomic = IBV_ACCESS_REMOTE_ATOMIC,
  flush_global = 1U << 8,            ///< IBV_ACCESS_FLUSH_GLOBAL in rdma-core 45 and newer
  flush_persistent = 1U << 9,        ///< IBV_ACCESS_FLUSH_PERSISTENT in rdma-core 45 and newer
  window_bind = IBV_ACCESS_MW_BIND,  ///< memory windows may be bound to the memory
  on_demand = IBV_ACCESS_ON_DEMAND,
  relaxed_ordering = IBV_ACCESS_RELAXED_ORDERING,
};

template <>
inline constexpr bool is_flag_bit<access_flag> = true;

using access_flags = flags<access_flag>;

/// The rights and options by name, which can be combined: `access::local_write |
/// access::remote_read`.
namespace access {
/// Grants nothing beyond the right that always exists: this side's device may read the memory, for
/// sends and RDMA writes.
inline constexpr access_flags local_read{};
inline constexpr access_flags local_write = access_flag::local_write;
inline constexpr access_flags remote_write = access_flag::remote_write;
inline constexpr access_flags remote_read = access_flag::remote_read;
inline constexpr access_flags remote_atomic = access_flag::remote_atomic;
/// Peers may flush their writes (RDMA flush). With `flush_global`, a flush completes when the
/// writes are visible to all processors and devices of this machine. With `flush_persistent`, it
/// completes when the writes would survive a power loss. A device that does not support RDMA flush
/// refuses to register memory with these rights.
inline constexpr access_flags flush_global = access_flag::flush_global;
inline constexpr access_flags flush_persistent = access_flag::flush_persistent;
/// Memory windows may be bound to the memory. A bound window then grants peers the rights with
/// which it was bound.
inline constexpr access_flags window_bind = access_flag::window_bind;
/// This is a registration option rather than a right. The pages are not pinned, but are fetched
/// when the device first uses them, which is slow. The device must support this; see
/// `on_demand_paging::query`.
inline constexpr access_flags on_demand = access_flag::on_demand;
/// This is a registration option rather than a right. The device's writes may reach memory in a
/// different order from the order in which they arrived (PCI relaxed ordering), which is faster on
/// some machines. Only after the completion has been polled is all data certain to be in memory, so
/// a program must not wait for the last byte of a message instead. The option is a hint, which has
/// no effect if the device or the kernel does not support it.
inline constexpr access_flags relaxed_ordering = access_flag::relaxed_ordering;
/// All rights that peers can have, except the rights to RDMA flush.
inline constexpr access_flags all_remote = remote_write | remote_read | remote_atomic;
/// All rights that peers can have.
inline constexpr access_flags any_remote = all_remote | flush_global | flush_persistent;
}  // namespace access

/// Writes the names, joined by "|"; "local read" for an empty set.
std::ostream& operator<<(std::ostream& out, access_flags rights);

template <access_flags Rights>
concept LocallyWritable =
    detail::because(Rights.contains(access::local_write),
                    "this memory lacks access::local_write: the device may not write received, "
                    "read or fetched data into it");

template <access_flags Rights>
concept RemotelyReadable =
    detail::because(Rights.contains(access::remote_read),
                    "this handle to remote memory lacks access::remote_read: a read needs a handle "
                    "with that right, which the owner of the memory has to grant");

template <access_flags Rights>
concept RemotelyWritable =
    detail::because(Rights.contains(access::remote_write),
                    "this handle to remote memory lacks access::remote_write: a write needs a "
                    "handle with that right, which the owner of the memory has to grant");

/// True if `Theirs` includes all of `Rights`.
template <access_flags Theirs, access_flags Rights>
concept GrantsAllOf = detail::because(
    Theirs.contains(Rights),
    "this handle to remote memory lacks some of the required rights, which only the owner of the "
    "memory can grant");

template <access_flags Rights>
concept RemotelyAccessible =
    detail::because(Rights.intersects(access::any_remote),
                    "this memory grants no remote rights: register it with access::remote_read, "
                    "remote_write or remote_atomic");

/// Rights with which memory can be registered: the verbs require local write for remote write and
/// atomics.
template <access_flags Rights>
concept RegistrableRights = detail::because(
    Rights.contains(access::local_write) ||
        !Rights.intersects(access::remote_write | access::remote_atomic),
    "access::remote_write and access::remote_atomic need access::local_write as well");

}  // namespace verbspp
