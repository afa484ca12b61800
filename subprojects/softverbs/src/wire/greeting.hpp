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

/// What the ends of a connection tell each other besides packets.
struct notice {
  enum class kind : std::uint8_t {
    /// From who connected, before all else, with the descriptor of memory for both ends.
    greeting = 0x80,
    /// The only answer to that, with the descriptors of the other's tables, and of the memory of
    /// its
    /// devices, if it has any. Without any meaning if the greeting wasn't understood.
    answer,
    /// From who connected, after the answer: all packets from here on come through the ring.
    changed_to_ring,
    /// From the same: the reader of the ring, who said that he sleeps, has something to read.
    something_to_read,
    /// From the other: the writer, who said that he waits, has room again.
    room_to_write,
  };
  kind what;
  /// Of an answer: the memory is mapped there.
  std::uint8_t accepted;
  std::byte unused[6];
};
static_assert(sizeof(notice) == 8 && std::is_trivially_copyable_v<notice>);

/// The parts of the memory that both ends of a connection share.
namespace pair_memory {
/// The ring of packets, from who connected.
inline constexpr std::size_t ring = 0;
/// Where he says what he is doing to the other end's memory by himself.
inline constexpr std::size_t hazards = ring_end::bytes;
inline constexpr std::size_t hazard_bytes = std::size_t{128} * 1024;
inline constexpr std::size_t bytes = hazards + hazard_bytes;
}  // namespace pair_memory

/// How much memory the devices of a process have.
inline constexpr std::size_t device_memory_bytes = std::size_t{16} << 20;

/// Another process, or this one, as the end of a connection that has been greeted. Anyone may keep
/// it, also when the process is gone; what the memory says is to be believed by nobody.
struct remote_process {
  /// As far as the kernel knows; 0 if this process can't tell, being in a namespace of its own.
  pid_t process = 0;
  /// Memory for both ends of this connection, and nobody else.
  shared_memory pair;
  std::span<std::byte> ring() const noexcept {
    return pair.bytes().subspan(pair_memory::ring, ring_end::bytes);
  }
  std::span<std::byte> hazards() const noexcept {
    return pair.bytes().subspan(pair_memory::hazards, pair_memory::hazard_bytes);
  }
  /// What that process tells everybody; only it can write there. Empty if it has nothing to tell,
  /// and for the end that was connected to.
  shared_memory tables;
  /// The memory of that process' devices, for everybody; may be empty.
  shared_memory device_memory;
  /// The connection has ended. Told by the engine's thread at the latest, a millisecond after the
  /// process has died; its number is nobody else's by then.
  std::atomic<bool> gone{false};
};

/// Whether the other end belongs to the same user, as far as memory may be shared.
bool is_of_same_user(int socket) noexcept;
/// The number of the process at the other end; of a listener, that which made it one.
pid_t process_behind(int socket) noexcept;

/// What goes with a notice: those that aren't negative, the second only after a first one.
using attachment = std::array<int, 2>;
inline constexpr attachment nothing_attached{-1, -1};
/// Sends it, with these descriptors. False if it can't be sent now.
bool send_notice(int socket, const notice& what, const attachment& with) noexcept;
/// The same where only the kind says something.
bool send_notice(int socket, notice::kind what) noexcept;

/// What comes with a message.
class descriptors {
 public:
  descriptors() noexcept = default;
  descriptors(const descriptors&) = delete;
  descriptors& operator=(const descriptors&) = delete;
  ~descriptors();

  /// As recv without waiting, and takes at most two descriptors.
  ssize_t receive(int socket, std::byte* to, std::size_t size) noexcept;
  /// Negative if there was none.
  int first() const noexcept { return taken_[0]; }
  int second() const noexcept { return taken_[1]; }

 private:
  attachment taken_ = nothing_attached;
};

/// A notice, if it is one.
std::optional<notice> read_notice(const std::byte* message, std::size_t length) noexcept;

}  // namespace softverbs
