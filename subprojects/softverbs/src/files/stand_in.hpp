// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/device_files.hpp"

#include <array>

namespace softverbs {

/// The path to ask the kernel for in place of another one: that one itself, unless it is of a soft
/// device. Lives until the kernel has been asked.
class stand_in {
 public:
  enum class purpose { look, open };

  stand_in(const char* path, purpose wanted) : path_(path) {
    if (may_be_of_device(path)) find(wanted);
  }
  stand_in(const stand_in&) = delete;
  stand_in& operator=(const stand_in&) = delete;
  /// Leaves errno alone.
  ~stand_in() {
    if (descriptor_ >= 0) close();
  }

  const char* path() const noexcept { return path_; }
  /// Whether it stands for another one. It may be a symbolic link then, and that one isn't.
  bool replaces() const noexcept { return replaces_; }
  /// There is none, for a reason that errno tells.
  bool failed() const noexcept { return failed_; }

 private:
  void find(purpose wanted) noexcept;
  void close() const noexcept;

  const char* path_;
  int descriptor_ = -1;
  bool replaces_ = false;
  bool failed_ = false;
  std::array<char, 32> own_;
};

}  // namespace softverbs
