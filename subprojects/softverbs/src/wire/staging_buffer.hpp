// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace softverbs {

/// Where packets land before they are checked and copied to their destination.
///
/// The memory belongs to a file, so that the kernel can do that copy (by reading
/// the file): the program may have unmapped the destination, which then is an
/// error of one work request instead of a crash.
class staging_buffer {
 public:
  staging_buffer() noexcept = default;
  staging_buffer(const staging_buffer&) = delete;
  staging_buffer& operator=(const staging_buffer&) = delete;
  ~staging_buffer() { close(); }

  /// 0 or an errno.
  int open(std::size_t size) noexcept;
  void close() noexcept;

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  /// Copies from this buffer into memory that the program registered, the way a
  /// device does: false if it can't be written (part of it may be then), and no
  /// sanitizer watches, because the program may have marked the memory
  /// untouchable until the completion. The only place that writes user memory.
  bool copy_out(void* destination, const std::byte* source, std::size_t length) const noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
};

}  // namespace softverbs
