// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "files/device_files.hpp"

#include <array>

namespace softverbs {

/// Replaces a path that belongs to a soft device with the path of a file that the kernel can open.
/// Replaces the path of a folder only for lookups. Leaves any other path as it is. The object must
/// exist until the system call has returned.
class stand_in {
 public:
  enum class purpose { look, open };

  stand_in(const char* path, purpose wanted) : path_(path) {
    if (may_be_of_device(path)) find(wanted);
  }
  stand_in(const stand_in&) = delete;
  stand_in& operator=(const stand_in&) = delete;
  /// Doesn't change errno.
  ~stand_in() {
    if (descriptor_ >= 0) close();
  }

  const char* path() const noexcept { return path_; }
  /// True if `path()` differs from the path given. The substitute may be a symbolic link, even
  /// though the original is not.
  bool replaces() const noexcept { return replaces_; }
  /// True if no stand-in could be created; errno is set in this case.
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
