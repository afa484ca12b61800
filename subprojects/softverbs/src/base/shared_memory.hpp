// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace softverbs {

/// Memory that processes of a host share by passing its descriptor. It has no name, so a crash
/// leaves nothing behind. Its size can't be changed, because a process that truncated the memory
/// would crash the other processes that have mapped it.
class shared_memory {
 public:
  shared_memory() noexcept = default;
  shared_memory(shared_memory&& from) noexcept
      : descriptor_(std::exchange(from.descriptor_, -1)), bytes_(std::exchange(from.bytes_, {})) {}
  shared_memory& operator=(shared_memory&& from) noexcept {
    std::swap(descriptor_, from.descriptor_);
    std::swap(bytes_, from.bytes_);
    return *this;
  }
  ~shared_memory() { reset(); }

  enum class others : unsigned char { write, only_read };

  /// Creates memory filled with zeros. Its pages are allocated only when they are used. `may`
  /// specifies whether other processes that get the descriptor can write to the memory. If they
  /// can't, the kernel prevents writes even after they reopen the descriptor. Returns 0 or an errno
  /// value.
  int create(std::size_t size, others may) noexcept;

  /// Maps memory by its descriptor, which stays open. Usually, another process has created the
  /// memory. Returns 0 or an errno value, for example EINVAL if the memory is not a file of this
  /// size in tmpfs, or if its size can be changed. A `size` of 0 permits any size but 0.
  int map(int descriptor, std::size_t size, bool to_write) noexcept;

  /// The descriptor of memory created here, to be passed to other processes. Close it with
  /// `close_descriptor` when no other process will need it.
  int descriptor() const noexcept { return descriptor_; }
  void close_descriptor() noexcept;
  void reset() noexcept;

  std::span<std::byte> bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return !bytes_.empty(); }

 private:
  int descriptor_ = -1;
  std::span<std::byte> bytes_;
};

}  // namespace softverbs
