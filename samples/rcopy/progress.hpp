// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>

namespace rcopy {

/// A progress bar on stderr. Prints nothing if stderr is not a terminal.
class progress {
 public:
  progress(std::uint64_t first, std::uint64_t total) noexcept : first_(first), total_(total) {}
  ~progress() {
    if (shown_) std::fputc('\n', stderr);
  }
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  void show(std::uint64_t done) noexcept {
    const auto now = clock::now();
    if (!is_terminal_ || (now < next_ && done != total_)) return;
    next_ = now + std::chrono::milliseconds(100);
    shown_ = true;
    constexpr int width = 40;
    const double share = total_ == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total_);
    const int filled = static_cast<int>(share * width);
    const std::chrono::duration<double> time = now - start_;
    const double speed = static_cast<double>(done - first_) / 1e6 / std::max(time.count(), 1e-6);
    std::fprintf(stderr, "\r[%.*s%*s] %3.0f %%, %.1f MB/s ", filled,
                 "########################################", width - filled, "", share * 100,
                 speed);
  }

 private:
  using clock = std::chrono::steady_clock;
  std::uint64_t first_;
  std::uint64_t total_;
  clock::time_point start_ = clock::now();
  clock::time_point next_ = start_;
  bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
};

}  // namespace rcopy
