// SPDX-License-Identifier: Apache-2.0
#include "files/stand_in.hpp"

#include "base/sealed_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace softverbs {

void stand_in::find(purpose wanted) noexcept {
  const int error = errno;
  file_text text;
  std::size_t size = 0;
  switch (find_device_file(path_, text, size)) {
    case file_kind::none:
      break;
    case file_kind::folder_of_devices:
      // A folder that really exists needs no stand-in.
      if (::syscall(SYS_faccessat, AT_FDCWD, path_, F_OK) == 0) break;
      [[fallthrough]];
    case file_kind::directory:
      // This stand-in is only for lookups, because a program that opened it would list the wrong
      // contents.
      if (wanted == purpose::look) {
        path_ = "/sys/class";
        replaces_ = true;
      }
      break;
    case file_kind::command_device:
      // This character device can be opened by every user, and refuses all writes.
      path_ = "/dev/full";
      replaces_ = true;
      break;
    case file_kind::text:
      constexpr mode_t readable = 0444;
      descriptor_ = open_sealed_file({text.data(), size});
      if (descriptor_ < 0 || ::fchmod(descriptor_, readable) != 0) {
        failed_ = true;
        return;
      }
      std::snprintf(own_.data(), own_.size(), "/proc/self/fd/%d", descriptor_);
      path_ = own_.data();
      replaces_ = true;
  }
  errno = error;
}

void stand_in::close() const noexcept {
  const int error = errno;
  ::close(descriptor_);
  errno = error;
}

}  // namespace softverbs
