// SPDX-License-Identifier: Apache-2.0
#include "wire/staging_buffer.hpp"

#include "base/as_a_device.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace softverbs {

int staging_buffer::open(std::size_t size) noexcept {
  file_ = ::memfd_create("softverbs", MFD_CLOEXEC);
  if (file_ < 0) return errno;
  if (::ftruncate(file_, static_cast<off_t>(size)) != 0) {
    const int error = errno;
    close();
    return error;
  }
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    close();
    return error;
  }
  data_ = static_cast<std::byte*>(memory);
  size_ = size;
  return 0;
}

void staging_buffer::close() noexcept {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (file_ >= 0) ::close(file_);
  data_ = nullptr;
  file_ = -1;
}

bool staging_buffer::copy_out(void* destination, const std::byte* source,
                              std::size_t length) const noexcept {
  const unwatched device(destination, length);
  // The bare system call, because sanitizers intercept the function.
  while (length > 0) {
    const long copied =
        ::syscall(SYS_pread64, file_, destination, length, static_cast<off_t>(source - data_));
    if (copied <= 0) return false;
    destination = static_cast<std::byte*>(destination) + copied;
    source += copied;
    length -= static_cast<std::size_t>(copied);
  }
  return true;
}

}  // namespace softverbs
