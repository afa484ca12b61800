// SPDX-License-Identifier: Apache-2.0
/// \file
/// Takes the memory that requests use, returns it, and checks it.
#include "end.hpp"
#include "layout.hpp"
#include "outcome.hpp"

#include <cstring>

namespace verbspp::soak {

int end::take_slot() {
  claim(!free_.empty(), "no memory left: the soak itself leaks it");
  const std::size_t at = any(free_.size());
  const int index = free_[at];
  free_[at] = free_.back();
  free_.pop_back();
  claim(slots_[static_cast<std::size_t>(index)].is_untouched(),
        "bytes landed in memory that had been returned");
  return index;
}

void end::give_slot(int index) {
  slots_[static_cast<std::size_t>(index)].fill();
  free_.push_back(index);
}

private_memory end::take_owned(place& where) {
  if (!owned_.empty() && !once_in(8)) {
    owned taken = std::move(owned_.back());
    owned_.pop_back();
    where = taken.where;
    claim(where.is_untouched(), "bytes landed in a buffer that had been returned");
    return std::move(taken.memory);
  }
  private_memory made = must(private_memory::allocate(domain_, longest), "allocate a buffer");
  where = {made.data(), longest, random_()};
  where.fill();
  return made;
}

void end::give_owned(private_memory memory, place where) {
  claim(memory.data() == where.data && memory.size() == longest,
        "a request returned a buffer other than its own");
  where.fill();
  if (owned_.size() < 8) owned_.push_back({std::move(memory), where});
}

/// Called before the first connection, and after each one has ended, when the peer cannot write to
/// the memory. Fills the memory with known bytes, so that late writes are detected.
void end::take_memory_back() {
  for (place& each : mine_blocks_) each.fill();
  std::memset(exposed_.data(), 0xa5, words_size);
}

}  // namespace verbspp::soak
