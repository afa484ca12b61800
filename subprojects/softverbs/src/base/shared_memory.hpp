// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace softverbs {

/// Memory that processes of the host may share, by its descriptor. No name leads to it, so nothing
/// is left behind by a crash. Its size never changes: who has mapped it can't be brought down by
/// another one who makes it smaller.
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

  /// New memory, all zeros, of which only the pages that are used cost something. Who gets the
  /// descriptor can write there, too, or not, by whatever way he comes to it. 0 or an errno.
  int create(std::size_t size, others may) noexcept;

  /// Maps what another process has created, and leaves the descriptor alone. Memory that isn't what
  /// `create` makes, of this size, is refused: `size` 0 takes any. 0 or an errno.
  int map(int descriptor, std::size_t size, bool to_write) noexcept;

  /// Of what was created here; to be handed out, and to be closed when nobody else will need it.
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
