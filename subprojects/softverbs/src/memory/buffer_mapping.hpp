// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// A part of a dma-buf, mapped for as long as this lives, whoever closes the file's descriptor. In
/// the place of a dma-buf, there may be what /dev/udmabuf makes one of: a memfd, or a file of
/// tmpfs.
class buffer_mapping {
 public:
  buffer_mapping() noexcept = default;
  buffer_mapping(const buffer_mapping&) = delete;
  buffer_mapping& operator=(const buffer_mapping&) = delete;
  ~buffer_mapping();

  /// Once. 0, or an errno: EBADF for no open file, EINVAL for one that is neither of these or
  /// hasn't all of that part, EACCES or EPERM for one that may not be written.
  int map(int descriptor, std::uint64_t offset, std::size_t length, bool to_write) noexcept;

  /// The first byte of the part. Its pages may go while it is mapped, if somebody makes the file
  /// smaller.
  std::byte* start() const noexcept { return start_; }

 private:
  std::span<std::byte> pages_;
  std::byte* start_ = nullptr;
};

}  // namespace softverbs
