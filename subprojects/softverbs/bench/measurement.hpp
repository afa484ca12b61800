// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

/// What all measurements share: a clock, what was seen, and how it is told to table.py.
namespace bench {

/// The lengths of short and long messages, in bytes.
inline constexpr std::size_t small = 64;
inline constexpr std::size_t large = std::size_t{1} << 20;

using seconds = std::chrono::duration<double>;

/// Prints why, with errno's text, and ends the process: what can't be measured has no figure.
[[noreturn]] void fail(const char* what);
/// Fails unless `right`.
inline void check(bool right, const char* what) {
  if (!right) fail(what);
}

inline seconds now() noexcept { return std::chrono::steady_clock::now().time_since_epoch(); }

/// Times of one thing that was done over and over.
class samples {
 public:
  samples() { times_.reserve(std::size_t{1} << 20); }
  void add(seconds time) {
    if (times_.size() < times_.capacity()) times_.push_back(time.count());
  }
  /// Prints median, 99th percentile and the longest, in seconds.
  void print(const char* name);

 private:
  std::vector<double> times_;
};

/// Prints a single figure: bytes, requests, or whatever it is per second, or just so many.
void print(const char* name, double figure);

/// Keeps this thread on one processor, where there are as many.
void stay_on(unsigned processor) noexcept;

/// How long each measurement goes on.
inline seconds duration{0.4};

/// The two ends of a measurement with two processes; each has a socket to the other, over which
/// they agree before and after.
struct two_ends {
  std::function<void(int)> here;
  std::function<void(int)> there;  ///< in a child
};
/// Runs both, and fails if the child did.
void run(const two_ends& ends);

void put(int socket, const void* bytes, std::size_t length);
void get(int socket, void* bytes, std::size_t length);

struct measurement {
  const char* name;
  void (*run)();
};

extern const std::vector<measurement> yardsticks;
extern const std::vector<measurement> of_two_processes;
extern const std::vector<measurement> of_one_process;
extern const std::vector<measurement> of_upkeep;

}  // namespace bench
