// SPDX-License-Identifier: Apache-2.0
/// \file
/// Watches a soak while it runs.
#pragma once

#include "../sanitized.hpp"
#include "board.hpp"
#include "soak.hpp"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace verbspp::soak {

#ifdef VERBSPP_TEST_SANITIZED
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

/// Resources whose use must not grow with the number of connections.
struct footprint {
  std::size_t resident = 0;   ///< bytes
  std::size_t allocated = 0;  ///< bytes allocated with malloc
  std::size_t descriptors = 0;

  [[nodiscard]] static footprint now() {
    footprint found;
    std::ifstream statm("/proc/self/statm");
    std::size_t all = 0;
    statm >> all >> found.resident;
    found.resident *= static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    found.allocated = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
    for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
      ++found.descriptors;
    return found;
  }
  /// Returns the larger of the two values for each resource.
  [[nodiscard]] footprint or_more(const footprint& other) const {
    return {std::max(resident, other.resident), std::max(allocated, other.allocated),
            std::max(descriptors, other.descriptors)};
  }
  [[nodiscard]] std::string text() const {
    return std::to_string(resident / 1024) + " KiB resident, " + std::to_string(allocated / 1024) +
           " KiB allocated, " + std::to_string(descriptors) + " descriptors";
  }
};

/// Watches a soak until it is over, and ends it if it takes too long. If the soak makes no progress
/// any more, aborts the program, since a thread that hangs cannot be stopped.
class watcher {
 public:
  /// \param operations returns the number of operations so far
  watcher(const options& wanted, verdict& shared, std::function<std::uint64_t()> operations)
      : wanted_(wanted), shared_(shared), operations_(std::move(operations)) {}

  template <class IsDone, class Doing, class Each>
  void watch(IsDone is_done, Doing doing, Each each_moment) {
    const auto started = clock::now();
    auto last_change = started;
    auto last_word = started;
    auto last_look = started;
    std::uint64_t before = 0;
    while (!is_done()) {
      // steady: this pause is not critical, because the loop polls until the soak is over, and
      // checks deadlines each time
      std::this_thread::sleep_for(2ms);
      each_moment();
      const auto now = clock::now();
      const std::uint64_t count = operations();
      if (now - started >= wanted_.time && count >= wanted_.at_least) shared_.is_over = true;
      if (count != before) last_change = now;
      before = count;
      if (now - last_change > 4 * wanted_.patience + 30s) {
        std::fprintf(stderr, "soak: no progress after %llu operations; %s\n",
                     static_cast<unsigned long long>(count), doing().c_str());
        std::abort();
      }
      const bool is_warm = is_past(4, count, now - started);
      // The number of channels and descriptors varies, so the base is the largest use within a
      // period rather than a single sample. If the sample were taken at a quiet moment, any later
      // use would look like a leak.
      if (is_warm &&
          (!has_base_ || (!is_past(2, count, now - started) && now - last_look > 20ms))) {
        base_ = base_.or_more(footprint::now());
        has_base_ = true;
        last_look = now;
      }
      if (wanted_.talks && now - last_word > 5s) {
        last_word = now;
        std::printf("%llu operations, %s\n", static_cast<unsigned long long>(count),
                    footprint::now().text().c_str());
        std::fflush(stdout);
      }
    }
    last_ = footprint::now();
  }
  [[nodiscard]] std::uint64_t operations() const { return operations_(); }
  /// Returns a description of the resources whose use has grown too much, or an empty string if
  /// there are none.
  [[nodiscard]] std::string growth(std::uint64_t kills) const {
    // Each sleeping channel has descriptors, and softverbs keeps one socket for each process to
    // which it has sent something.
    const std::size_t sockets = 8 + kills;
    // The amount of memory that the allocator keeps varies by less than this.
    constexpr std::size_t wavering = 4 << 20;
    if (!has_base_) return {};
    if (last_.descriptors > base_.descriptors + sockets ||
        (!is_sanitized && (last_.resident > base_.resident + 2 * wavering ||
                           last_.allocated > base_.allocated + wavering)))
      return "the use of memory or descriptors has grown: " + base_.text() + ", and later " +
             last_.text();
    return {};
  }
  [[nodiscard]] std::string text() const { return base_.text() + "; at the end " + last_.text(); }

 private:
  /// Returns true if 1/`part` of the operations have been performed, or 1/`part` of the time has
  /// passed.
  [[nodiscard]] bool is_past(unsigned part, std::uint64_t count, clock::duration time) const {
    return count > wanted_.operations / part || time > wanted_.time / part;
  }

  const options& wanted_;
  verdict& shared_;
  std::function<std::uint64_t()> operations_;
  footprint base_{};
  footprint last_{};
  bool has_base_ = false;
};

}  // namespace verbspp::soak
