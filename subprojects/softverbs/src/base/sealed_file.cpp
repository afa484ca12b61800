// SPDX-License-Identifier: Apache-2.0
#include "base/sealed_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

namespace softverbs {

int open_sealed_file(std::string_view text) noexcept {
  constexpr int all = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const int descriptor = ::memfd_create("softverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return -1;
  // Unlike write, pwrite leaves the file position at the start of the text.
  if (::pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
      ::fcntl(descriptor, F_ADD_SEALS, all) == 0)
    return descriptor;
  const int error = errno;
  ::close(descriptor);
  errno = error;
  return -1;
}

}  // namespace softverbs
