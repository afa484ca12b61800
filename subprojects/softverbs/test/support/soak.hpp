// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// Several processes that access each other's memory by one-sided requests concurrently, while
/// another process kills and stops them. All state that has to outlive one of them is on a shared
/// board: their memory, the data that each one has written there as far as it knows, and its
/// progress.
namespace soak {

inline constexpr std::size_t workers = 4;
inline constexpr std::size_t area_bytes = std::size_t{256} * 1024;
inline constexpr std::size_t guard_bytes = 4096;
inline constexpr unsigned char guard = 0xa5;

/// The memory that one process offers to another one, to write to and to count in.
struct lane {
  std::array<unsigned char, guard_bytes> before;
  std::array<unsigned char, area_bytes> area;
  std::array<unsigned char, guard_bytes> behind;
  std::uint64_t counter;
  std::array<unsigned char, guard_bytes - sizeof(std::uint64_t)> end;
};

/// The address and keys of a lane, for its writer.
struct keys {
  /// Odd while they change.
  std::atomic<std::uint32_t> version;
  std::uint32_t area;
  std::uint32_t counter;
  std::uint64_t area_at;
  std::uint64_t counter_at;
  /// The content of the area while its owner has withdrawn it.
  std::atomic<std::uint32_t> withdrawn;
  std::array<unsigned char, area_bytes> saved;
};

/// The knowledge that a lane's writer has of it.
struct knowledge {
  std::array<unsigned char, area_bytes> area;
  /// A write that was started, and is not known to be complete.
  std::atomic<std::uint32_t> writes;
  std::uint32_t offset;
  std::uint32_t length;
  std::uint64_t number;
  /// The number of atomics that were started since the counter was last read, and its value at that
  /// time.
  std::atomic<std::uint32_t> counts;
  std::uint64_t counted;
  /// The number of successful requests.
  std::atomic<std::uint64_t> done;
};

/// One end of a connection. Both change to the same epoch before they connect.
struct side {
  std::atomic<std::uint32_t> epoch;
  std::atomic<std::uint32_t> connected;
  address where;
};

struct figures {
  std::atomic<std::uint64_t> writes;
  std::atomic<std::uint64_t> reads;
  std::atomic<std::uint64_t> atomics;
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> failed;
  std::atomic<std::uint64_t> withdrawn;
  std::atomic<std::uint64_t> busy;
};

struct board {
  std::atomic<bool> stops;
  /// The first problem found.
  std::atomic<bool> wrong;
  std::array<char, 200> complaint;
  figures total;
  std::array<std::uint32_t, workers> seeds;
  /// The values of the last process of each worker.
  std::array<std::atomic<std::uint32_t>, workers> slots;
  std::array<std::atomic<std::ptrdiff_t>, workers> descriptors;
  std::array<std::atomic<std::ptrdiff_t>, workers> descriptors_alone;
  template <typename Of>
  using table = std::array<std::array<Of, workers>, workers>;
  table<side> sides;       ///< by this end, and the other end
  table<keys> keys_to;     ///< by owner, and writer
  table<lane> lanes;       ///< by owner, and writer
  table<knowledge> known;  ///< by writer, and owner
};

/// Data that differs at each place and in each write, as much as an area holds.
const unsigned char* data_of(std::uint64_t number);

/// True if the lane agrees with its writer's knowledge, as far as it is known.
bool agrees(const lane& found, const knowledge& known);
bool has_guards(const lane& found);

/// Runs one of the workers, whose number SOFTVERBS_SOAKER holds. Returns its exit code.
int work();

}  // namespace soak
