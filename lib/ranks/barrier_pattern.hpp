// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/group/peer_list.hpp>
#include <verbspp/ranks/barrier_kind.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

[[nodiscard]] constexpr barrier_kind kind_for(barrier_kind kind, std::size_t ranks) noexcept {
  if (kind != barrier_kind::by_size) return kind;
  return ranks <= 64 ? barrier_kind::dissemination : barrier_kind::binary_tree;
}

/// One action of a rank in a barrier: the rank sends a signal to another rank, or waits for a
/// signal from it.
struct barrier_act {
  bool signals;
  std::uint32_t with;
};

/// The actions of `rank` in a barrier of this kind, in their order. \pre the kind is not `by_size`,
/// and the rank is in the list
class barrier_acts {
 public:
  /// \param ranks must stay valid as long as this object exists
  barrier_acts(barrier_kind kind, const peer_list& ranks, std::uint32_t rank) noexcept
      : all_(ranks.begin()), count_(static_cast<std::uint32_t>(ranks.size())), kind_(kind) {
    own_ = static_cast<std::uint32_t>(std::find(all_, all_ + count_, rank) - all_);
  }

  /// Returns the next action; nothing after the last one.
  [[nodiscard]] std::optional<barrier_act> next() noexcept {
    return kind_ == barrier_kind::dissemination ? next_of_dissemination() : next_of_tree();
  }

 private:
  [[nodiscard]] std::optional<barrier_act> next_of_dissemination() noexcept {
    const std::uint64_t distance = std::uint64_t{1} << (number_ / 2);
    if (distance >= count_) return std::nullopt;
    const bool signals = number_++ % 2 == 0;
    return barrier_act{signals, all_[(own_ + (signals ? distance : count_ - distance)) % count_]};
  }
  /// Awaits the children, signals and awaits the parent, and signals the children.
  [[nodiscard]] std::optional<barrier_act> next_of_tree() noexcept {
    // A centralized barrier is a tree with one level.
    const bool is_star = kind_ == barrier_kind::centralized;
    const std::uint64_t first = is_star ? (own_ == 0 ? 1 : count_) : 2 * std::uint64_t{own_} + 1;
    const std::uint64_t end = std::min<std::uint64_t>(is_star ? count_ : first + 2, count_);
    const std::uint64_t children = end > first ? end - first : 0;
    const std::uint64_t with_parent = own_ != 0 ? 2 : 0;
    const std::uint64_t number = number_++;
    if (number < children) return barrier_act{false, all_[first + number]};
    if (number < children + with_parent)
      return barrier_act{number == children, all_[is_star ? 0 : (own_ - 1) / 2]};
    if (number < 2 * children + with_parent)
      return barrier_act{true, all_[first + number - children - with_parent]};
    return std::nullopt;
  }

  const std::uint32_t* all_;
  std::uint32_t count_;
  std::uint32_t own_ = 0;  ///< the rank's place in the list
  barrier_kind kind_;
  std::uint64_t number_ = 0;  ///< the number of actions so far
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
