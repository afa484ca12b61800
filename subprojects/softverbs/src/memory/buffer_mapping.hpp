// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softverbs {

/// A mapping of a part of a dma-buf. It exists as long as this object, even after the file's
/// descriptor is closed. Instead of a dma-buf, the file may be a memfd, or a file in tmpfs or
/// hugetlbfs.
class buffer_mapping {
 public:
  buffer_mapping() noexcept = default;
  buffer_mapping(const buffer_mapping&) = delete;
  buffer_mapping& operator=(const buffer_mapping&) = delete;
  ~buffer_mapping();

  /// Maps a part of the file; may be called once. Returns 0 or an errno value, such as EBADF if the
  /// descriptor is not open, EINVAL if the file is of a different kind or does not contain the
  /// whole part, and EACCES or EPERM if `to_write` is true and the file can't be written.
  int map(int descriptor, std::uint64_t offset, std::size_t length, bool to_write) noexcept;

  /// The first byte of the part. Pages may disappear while they are mapped, if a process truncates
  /// the file.
  std::byte* start() const noexcept { return start_; }

 private:
  std::span<std::byte> pages_;
  std::byte* start_ = nullptr;
};

}  // namespace softverbs
