// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

/// The parts that the measurements share.
namespace bench {

/// The lengths of short and long messages, in bytes.
inline constexpr std::size_t small = 64;
inline constexpr std::size_t large = std::size_t{1} << 20;

using seconds = std::chrono::duration<double>;

/// Prints `what`, with errno's text if errno is set, and ends the process, because a failed
/// measurement has no figure.
[[noreturn]] void fail(const char* what);
inline void check(bool right, const char* what) {
  if (!right) fail(what);
}

inline seconds now() noexcept { return std::chrono::steady_clock::now().time_since_epoch(); }

/// The times of a repeated operation, of which the first 2^20 are kept.
class samples {
 public:
  samples() { times_.reserve(std::size_t{1} << 20); }
  void add(seconds time) {
    if (times_.size() < times_.capacity()) times_.push_back(time.count());
  }
  /// Prints the median, the 99th percentile and the longest time, in seconds.
  void print(const char* name);

 private:
  std::vector<double> times_;
};

/// Prints a single figure: bytes, seconds, a number per second, or a ratio.
void print(const char* name, double figure);

/// Binds this thread to one of the processors that it may use, counted from 0. Does nothing if
/// there are not enough.
void stay_on(unsigned processor) noexcept;

/// The usual duration of the timed part of a measurement.
inline seconds duration{0.4};

/// The two ends of a measurement with two processes. Each gets a socket that is connected to the
/// other end.
struct two_ends {
  std::function<void(int)> here;
  std::function<void(int)> there;  ///< in a child process
};
/// Runs both ends, and fails if the child process failed.
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
