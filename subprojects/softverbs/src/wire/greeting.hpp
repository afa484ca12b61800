// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/shared_memory.hpp"
#include "wire/ring.hpp"

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

namespace softverbs {

/// A message on a connection, other than a packet.
struct notice {
  enum class kind : std::uint8_t {
    /// Starts the handshake. The end that connected sends this as its first message, with the
    /// descriptor of memory for both ends.
    greeting = 0x80,
    /// The only response to `greeting`. If `accepted` is set, it carries the descriptors that the
    /// sender has passed to `wire::publish`.
    answer,
    /// From the end that connected, after the answer: all further packets go through the ring.
    changed_to_ring,
    /// From the end that connected, which writes to the ring: the reader was asleep, and can read a
    /// message now.
    something_to_read,
    /// From the end that reads the ring: the writer was waiting for room, and there is room now.
    room_to_write,
  };
  kind what;
  /// Only in an answer: nonzero if its sender has mapped the memory that both ends share.
  std::uint8_t accepted;
  std::byte unused[6];
};
static_assert(sizeof(notice) == 8 && std::is_trivially_copyable_v<notice>);

/// The layout of the memory that both ends of a connection share.
namespace pair_memory {
/// The ring of packets, which the end that connected writes.
inline constexpr std::size_t ring = 0;
/// The space where the end that connected announces its direct accesses to the other end's memory.
inline constexpr std::size_t hazards = ring_end::bytes;
inline constexpr std::size_t hazard_bytes = std::size_t{128} * 1024;
inline constexpr std::size_t bytes = hazards + hazard_bytes;
}  // namespace pair_memory

/// The size of the memory of a process's devices.
inline constexpr std::size_t device_memory_bytes = std::size_t{16} << 20;

/// The other end of a connection whose ends share memory: another process, or this one. The object
/// may outlive the process. The contents of the shared memory must not be trusted.
struct remote_process {
  /// The process ID according to the kernel; 0 if it is unknown, because the process is in another
  /// namespace.
  pid_t process = 0;
  /// Memory that is shared by the two ends of this connection only.
  shared_memory pair;
  std::span<std::byte> ring() const noexcept {
    return pair.bytes().subspan(pair_memory::ring, ring_end::bytes);
  }
  std::span<std::byte> hazards() const noexcept {
    return pair.bytes().subspan(pair_memory::hazards, pair_memory::hazard_bytes);
  }
  /// The tables that the process publishes, which only that process can write. Empty if it
  /// publishes none. Always empty at the end that accepted the connection.
  shared_memory tables;
  /// The memory of that process's devices, which its peers can write to; may be empty.
  shared_memory device_memory;
  /// True after the connection has ended. If the other process dies, the engine usually notices,
  /// and sets this, within a millisecond.
  std::atomic<bool> gone{false};
};

/// True if the other end belongs to the same user, so that memory may be shared with it.
bool is_of_same_user(int socket) noexcept;
/// Returns the ID of the process at the other end, or 0 if it is unknown. If this end has connected
/// to a listener, the result is the process that called listen.
pid_t process_behind(int socket) noexcept;

/// The descriptors to be sent with a notice; negative ones are omitted. If the first is negative,
/// the second must be, too.
using attachment = std::array<int, 2>;
inline constexpr attachment nothing_attached{-1, -1};
/// Sends a notice with these descriptors. Never waits. Returns false if the notice was not sent.
bool send_notice(int socket, const notice& what, const attachment& with) noexcept;
/// Sends a notice that consists only of its kind.
bool send_notice(int socket, notice::kind what) noexcept;

/// The descriptors received with a message.
class descriptors {
 public:
  descriptors() noexcept = default;
  descriptors(const descriptors&) = delete;
  descriptors& operator=(const descriptors&) = delete;
  ~descriptors();

  /// Receives a message, as recv does with MSG_DONTWAIT and MSG_TRUNC, and up to two descriptors
  /// that came with it.
  ssize_t receive(int socket, std::byte* to, std::size_t size) noexcept;
  /// The first descriptor, or a negative number if none was received.
  int first() const noexcept { return taken_[0]; }
  int second() const noexcept { return taken_[1]; }

 private:
  attachment taken_ = nothing_attached;
};

/// Returns the notice in this message, or nothing if the message is not a notice.
std::optional<notice> read_notice(const std::byte* message, std::size_t length) noexcept;

}  // namespace softverbs
