// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// Several processes that access each other's memory by one-sided requests, all at once, while
/// somebody else kills and stops them. All that has to outlive one of them lies on a board that
/// they share: their memory, what each one believes to have written there, and how far it was.
namespace soak {

inline constexpr std::size_t workers = 4;
inline constexpr std::size_t area_bytes = std::size_t{256} * 1024;
inline constexpr std::size_t guard_bytes = 4096;
inline constexpr unsigned char guard = 0xa5;

/// The memory that one process has for another one, to write to and to count in.
struct lane {
  std::array<unsigned char, guard_bytes> before;
  std::array<unsigned char, area_bytes> area;
  std::array<unsigned char, guard_bytes> behind;
  std::uint64_t counter;
  std::array<unsigned char, guard_bytes - sizeof(std::uint64_t)> end;
};

/// Where a lane is, for who writes there.
struct keys {
  /// Odd while they change.
  std::atomic<std::uint32_t> version;
  std::uint32_t area;
  std::uint32_t counter;
  std::uint64_t area_at;
  std::uint64_t counter_at;
  /// What the owner keeps of the area while it has taken that back.
  std::atomic<std::uint32_t> withdrawn;
  std::array<unsigned char, area_bytes> saved;
};

/// What the one who writes to a lane knows of it.
struct knowledge {
  std::array<unsigned char, area_bytes> area;
  /// A write that was begun, and is not known to be done.
  std::atomic<std::uint32_t> writes;
  std::uint32_t offset;
  std::uint32_t length;
  std::uint64_t number;
  /// What the counter was when it was last seen, and how many atomics were begun since.
  std::atomic<std::uint32_t> counts;
  std::uint64_t counted;
  /// Requests that succeeded.
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
  /// What went wrong first.
  std::atomic<bool> wrong;
  std::array<char, 200> complaint;
  figures total;
  std::array<std::uint32_t, workers> seeds;
  /// Of the last one of each.
  std::array<std::atomic<std::uint32_t>, workers> slots;
  std::array<std::atomic<std::ptrdiff_t>, workers> descriptors;
  std::array<std::atomic<std::ptrdiff_t>, workers> descriptors_alone;
  template <typename Of>
  using table = std::array<std::array<Of, workers>, workers>;
  table<side> sides;       ///< by this end, and the other one
  table<keys> keys_to;     ///< by owner, and who writes
  table<lane> lanes;       ///< the same
  table<knowledge> known;  ///< by who writes, and the owner
};

/// Data that looks different at each place and in each write: as much as an area has.
const unsigned char* data_of(std::uint64_t number);

/// Whether the lane is as its writer knows it, as far as that can be known.
bool agrees(const lane& found, const knowledge& known);
bool has_guards(const lane& found);

/// What one of them does, told by SOFTVERBS_SOAKER which one it is; its exit code.
int work();

}  // namespace soak
