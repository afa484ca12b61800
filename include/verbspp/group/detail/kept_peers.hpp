// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/group/peer_list.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <new>
#include <span>

namespace verbspp::detail {

/// A copy of a list of peers. An operation keeps it because the program's function, which is called
/// for each peer, may change the original list. Up to 64 peers need no allocation.
class kept_peers {
 public:
  explicit kept_peers(const peer_list& peers) noexcept : size_(peers.size()) {
    if (size_ <= std::size(few_)) {
      first_ = few_;
    } else {
      many_ = owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[size_]);
      first_ = many_.get();
    }
    if (first_ == nullptr) return;
    std::uint32_t* at = first_;
    for (const std::uint32_t each : peers) *at++ = each;
  }
  kept_peers(const kept_peers&) = delete;
  kept_peers& operator=(const kept_peers&) = delete;
  ~kept_peers() = default;

  /// False if the memory for the list could not be allocated.
  [[nodiscard]] bool exists() const noexcept { return first_ != nullptr; }
  [[nodiscard]] peer_list list() const noexcept {
    return std::span<const std::uint32_t>(first_, size_);
  }

 private:
  std::uint32_t few_[64];
  owned<std::uint32_t[]> many_{};
  std::uint32_t* first_ = nullptr;
  std::size_t size_;
};

}  // namespace verbspp::detail
