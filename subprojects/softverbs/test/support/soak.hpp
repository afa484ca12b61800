// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/fabric.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// Several processes, which are called workers, access each other's memory with concurrent
/// one-sided requests, while the test kills and stops them. A shared board holds all state that
/// must outlive a process: the memory of the workers, the data that they have written to it or may
/// have written, and their progress.
namespace soak {

inline constexpr std::size_t workers = 4;
inline constexpr std::size_t area_bytes = std::size_t{256} * 1024;
inline constexpr std::size_t guard_bytes = 4096;
inline constexpr unsigned char guard = 0xa5;

/// The memory that one worker offers to another. It has an area to which the other worker writes,
/// and a counter.
struct lane {
  std::array<unsigned char, guard_bytes> before;
  std::array<unsigned char, area_bytes> area;
  std::array<unsigned char, guard_bytes> behind;
  std::uint64_t counter;
  std::array<unsigned char, guard_bytes - sizeof(std::uint64_t)> end;
};

/// The addresses and the keys of a lane. The worker that writes to the lane reads them.
struct keys {
  /// This number is odd while the addresses and the keys are being changed.
  std::atomic<std::uint32_t> version;
  std::uint32_t area;
  std::uint32_t counter;
  std::uint64_t area_at;
  std::uint64_t counter_at;
  /// Not zero while `saved` holds the content of the area, which the owner has withdrawn.
  std::atomic<std::uint32_t> withdrawn;
  std::array<unsigned char, area_bytes> saved;
};

/// The content of a lane, as far as the worker that writes to it knows it.
struct knowledge {
  std::array<unsigned char, area_bytes> area;
  /// Nonzero if a write was started, but is not known to have completed. The three members after
  /// this one describe the write.
  std::atomic<std::uint32_t> writes;
  std::uint32_t offset;
  std::uint32_t length;
  std::uint64_t number;
  /// The number of atomic operations that were started after the last one whose result is known.
  std::atomic<std::uint32_t> counts;
  /// The value of the counter after the last atomic operation whose result is known.
  std::uint64_t counted;
  /// The number of successful requests.
  std::atomic<std::uint64_t> done;
};

/// One end of a connection. Both ends change to the same epoch before they connect.
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
  /// True if a problem was found. `complaint` describes the first problem.
  std::atomic<bool> wrong;
  std::array<char, 200> complaint;
  figures total;
  std::array<std::uint32_t, workers> seeds;
  /// These values describe the current process of each worker.
  std::array<std::atomic<std::uint32_t>, workers> slots;
  std::array<std::atomic<std::ptrdiff_t>, workers> descriptors;
  std::array<std::atomic<std::ptrdiff_t>, workers> descriptors_alone;
  template <typename Of>
  using table = std::array<std::array<Of, workers>, workers>;
  table<side> sides;       ///< indexed by this end, and then by the other end
  table<keys> keys_to;     ///< indexed by owner and writer
  table<lane> lanes;       ///< indexed by owner and writer
  table<knowledge> known;  ///< indexed by writer and owner
};

/// Returns random data that fills a whole area. It depends only on the number.
const unsigned char* data_of(std::uint64_t number);

/// Returns true if the lane agrees with the content that its writer expects.
bool agrees(const lane& found, const knowledge& known);
bool has_guards(const lane& found);

/// Runs the worker whose number is in SOFTVERBS_SOAKER. Returns its exit code.
int work();

}  // namespace soak
