// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>

namespace verbspp {

/// The peers of an operation, identified by their numbers in a group. Requests are posted in the
/// order of the list, first to the peers that are connected, then to those that still have to be
/// connected. Pass `{0, 2}`, a contiguous range of `std::uint32_t`, or `group::all()`.
///
/// This is a view: the range from which it was constructed must stay valid until the call to which
/// it is passed has returned.
class peer_list {
 public:
  constexpr peer_list() noexcept = default;
  constexpr peer_list(std::initializer_list<std::uint32_t> peers VERBSPP_LIFETIMEBOUND) noexcept {
    // The members are assigned here, because g++ would warn about member initializers that keep a
    // pointer into the initializer list. A caller must not let the object outlive that list.
    first_ = peers.begin();
    size_ = peers.size();
  }
  constexpr peer_list(std::span<const std::uint32_t> peers) noexcept
      : first_(peers.data()), size_(peers.size()) {}
  template <class Range>
    requires std::is_convertible_v<const Range&, std::span<const std::uint32_t>> &&
             (!std::same_as<Range, peer_list>)
  constexpr peer_list(const Range& range VERBSPP_LIFETIMEBOUND) noexcept
      : peer_list(std::span<const std::uint32_t>(range)) {}

  [[nodiscard]] constexpr std::size_t size() const noexcept { return size_; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] constexpr const std::uint32_t* begin() const noexcept { return first_; }
  [[nodiscard]] constexpr const std::uint32_t* end() const noexcept { return first_ + size_; }

 private:
  const std::uint32_t* first_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace verbspp
