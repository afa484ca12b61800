// SPDX-License-Identifier: Apache-2.0
#include "ranks/step.hpp"

#include <algorithm>
#include <array>

namespace verbspp::detail {

namespace {

enum class kind_of_step : std::uint8_t { broadcast = 16, gather, all_gather, all_reduce };

[[nodiscard]] std::uint16_t tag_of(kind_of_step kind, std::size_t size,
                                   std::uint32_t root) noexcept {
  return detail::tag_of({static_cast<std::uint64_t>(kind), size, root});
}

/// One rank's edges in a binomial tree. Places are counted from the root, which is place 0. The
/// subtree of any other place p ends before p plus the lowest set bit of p. The children of place p
/// are at p + 1, p + 2, p + 4 and so on. So each subtree consists of consecutive places.
class tree {
 public:
  tree(std::uint32_t rank, std::uint32_t root, std::uint32_t size) noexcept
      : place_((rank + size - root) % size), root_(root), size_(size) {
    const std::uint32_t below = place_ == 0 ? size : place_ & (~place_ + 1);
    while (children_ < 31 && (1U << children_) < below && place_ + (1U << children_) < size)
      ++children_;
  }
  [[nodiscard]] bool has_parent() const noexcept { return place_ != 0; }
  [[nodiscard]] std::uint32_t parent() const noexcept { return at(place_ & (place_ - 1)); }
  [[nodiscard]] std::uint32_t children() const noexcept { return children_; }
  /// Returns a child by its number. Each child has a larger subtree than the one before, except
  /// that the last subtree may be cut short because there are no more ranks.
  [[nodiscard]] std::uint32_t child(std::uint32_t number) const noexcept {
    return at(place_ + (1U << number));
  }

 private:
  [[nodiscard]] std::uint32_t at(std::uint32_t place) const noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{place} + root_) % size_);
  }

  std::uint32_t place_;
  std::uint32_t root_;
  std::uint32_t size_;
  std::uint32_t children_ = 0;
};

/// Receives the value from the parent, if there is one. Then sends it from this rank's memory to
/// the children, starting with the last one, whose subtree is usually the largest.
template <class Step>
void hand_down(Step& now, const tree& around, std::span<std::byte> value, std::byte* memory,
               std::size_t at) noexcept {
  if (around.has_parent() && !now.take_into(around.parent(), value)) return;
  std::ranges::copy(value, memory + at);
  for (std::uint32_t i = around.children(); i-- > 0;) now.give(around.child(i), at, value.size());
}

}  // namespace

std::optional<error> signals::objection(std::uint32_t root) const noexcept {
  if (root < size_) return objection();
  return error::above_limit(collective_step, "root", root, size_ - 1,
                            "the root has to be a rank of the world");
}

group_results signals::broadcast(group& peers, std::span<std::byte> value, std::uint32_t root,
                                 const wait_limit& limit) noexcept {
  if (const auto objects = objection(root)) return *objects;
  const tree around(rank_, root, size_);
  const auto run = [&](step& now) noexcept {
    if (around.has_parent()) now.expect(around.parent());
    for (std::uint32_t i = 0; i < around.children(); ++i) now.promise(around.child(i));
    now.wait_to_begin();
    hand_down(now, around, value, data(), layout_.own_value(0));
  };
  return run_step(peers, everybody(), tag_of(kind_of_step::broadcast, value.size(), root), limit,
                  run);
}

group_results signals::gather(group& peers, std::span<const std::byte> mine,
                              std::span<std::byte> all, std::uint32_t root,
                              const wait_limit& limit) noexcept {
  if (const auto objects = objection(root)) return *objects;
  const auto run = [&](step& now) noexcept {
    if (rank_ != root) {
      now.promise(root);
      now.wait_to_begin();
      std::ranges::copy(mine, data() + layout_.own_value(0));
      now.give(root, layout_.own_value(0), mine.size());
      return;
    }
    for (std::uint32_t rank = 0; rank < size_; ++rank)
      if (rank != root) now.expect(rank);
    now.wait_to_begin();
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
      if (rank == root) {
        std::ranges::copy(mine, all.data() + rank * mine.size());
      } else if (!now.take_into(rank, all.subspan(rank * mine.size(), mine.size()))) {
        return;
      }
    }
  };
  return run_step(peers, everybody(), tag_of(kind_of_step::gather, mine.size(), root), limit, run);
}

group_results signals::all_gather(group& peers, std::span<const std::byte> mine,
                                  std::span<std::byte> all, const wait_limit& limit) noexcept {
  if (const auto objects = objection()) return *objects;
  // In each round, each rank sends to one other rank the values that it has so far, except for
  // those that the other rank already has. The distance to the other rank doubles with each round.
  const std::size_t size = mine.size();
  const std::size_t values = layout_.values_of_all(++all_gathers_);
  const auto to = [&](std::uint64_t distance) noexcept {
    return static_cast<std::uint32_t>((rank_ + size_ - distance) % size_);
  };
  const auto from = [&](std::uint64_t distance) noexcept {
    return static_cast<std::uint32_t>((rank_ + distance) % size_);
  };
  const auto run = [&](step& now) noexcept {
    for (std::uint64_t distance = 1; distance < size_; distance *= 2) {
      now.expect(from(distance));
      now.promise(to(distance));
    }
    now.wait_to_begin();
    std::ranges::copy(mine, data() + values + rank_ * size);
    for (std::uint64_t distance = 1; distance < size_; distance *= 2) {
      if (!now.has_room(to(distance))) return;
      const std::uint64_t count = std::min(distance, size_ - distance);
      const std::uint64_t in_front = std::min<std::uint64_t>(count, size_ - rank_);
      const std::size_t first = values + rank_ * size;
      now.write(to(distance), first, in_front * size, first);
      now.write(to(distance), values, (count - in_front) * size, values);
      now.write_number(to(distance));
      if (now.take(from(distance)) == nullptr) return;
    }
    take_bytes(all.data(), data() + values, all.size());
    for (std::uint64_t distance = 1; distance < size_; distance *= 2) now.release(from(distance));
  };
  return run_step(peers, everybody(), tag_of(kind_of_step::all_gather, size, 0), limit, run);
}

group_results signals::all_reduce(group& peers, std::span<std::byte> value, combining combine,
                                  void* context, const wait_limit& limit) {
  if (const auto objects = objection()) return *objects;
  const tree around(rank_, 0, size_);
  const auto run = [&](step& now) {
    for (std::uint32_t i = 0; i < around.children(); ++i) {
      now.expect(around.child(i));
      now.promise(around.child(i));
    }
    if (around.has_parent()) {
      now.promise(around.parent());
      now.expect(around.parent());
    }
    now.wait_to_begin();
    for (std::uint32_t i = 0; i < around.children(); ++i) {
      std::array<std::byte, largest_value> theirs;
      if (!now.take_into(around.child(i), std::span(theirs).first(value.size()))) return;
      combine(context, value.data(), theirs.data());
    }
    if (around.has_parent()) {
      std::ranges::copy(value, data() + layout_.own_value(0));
      now.give(around.parent(), layout_.own_value(0), value.size());
    }
    hand_down(now, around, value, data(), layout_.own_value(1));
  };
  return run_step(peers, everybody(), tag_of(kind_of_step::all_reduce, value.size(), 0), limit,
                  run);
}

}  // namespace verbspp::detail
