// SPDX-License-Identifier: Apache-2.0
#include "hub/hub_rows.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace verbspp::detail {

bool hub_rows::allocate() noexcept {
  mask_ = std::bit_ceil(2 * capacity_) - 1;
  rows_ = owned<hub_row[]>(new (std::nothrow) hub_row[capacity_ + 1]);
  chains_ = owned<hub_row*[]>(new (std::nothrow) hub_row*[mask_ + 1]);
  if (!rows_ || !chains_) return false;
  std::fill_n(chains_.get(), mask_ + 1, rows_.get());
  rows_.get()[0].keep(hub_row::held);
  for (std::uint32_t i = 0; i + 1 < capacity_; ++i) (*this)[i].next_free = i + 1;
  return true;
}

hub_row* hub_rows::add(hub_member& member) noexcept {
  if (first_free_ == hub_row::none) return nullptr;
  hub_row& row = (*this)[first_free_];
  row.id = {.index = first_free_, .generation = row.id.generation + 1};
  row.member = &member;
  member.id = row.id;
  first_free_ = row.next_free;
  ++size_;
  return &row;
}

void hub_rows::remove(hub_row& row) noexcept {
  row.member = nullptr;
  --size_;
  if (!row.is_in_turn()) free(row);
}

void hub_rows::free(hub_row& row) noexcept {
  row.end(hub_row::held | hub_row::in_turn | hub_row::for_inbox);
  row.next_free = std::exchange(first_free_, row.id.index);
}

void hub_rows::set_number(std::uint32_t number, const hub_member& member) noexcept {
  clear_number(member);
  hub_row& row = of(member);
  row.set_number(number);
  row.next_linked = std::exchange(chain_of(number), &row);
}

void hub_rows::clear_number(const hub_member& member) noexcept {
  const hub_row& row = of(member);
  for (hub_row** link = &chain_of(row.number()); *link != nullptr; link = &(*link)->next_linked)
    if (*link == &row) {
      *link = row.next_linked;
      return;
    }
}

hub_member* hub_rows::take_news() noexcept {
  // Channels with messages, but without news, stay in the list.
  const hub_row* const last = last_ready_;
  for (bool is_end = false; first_ready_ != nullptr && !is_end;) {
    hub_row& first = take_ready();
    is_end = &first == last;
    if (first.member == nullptr || first.is_kept()) continue;
    const bool has_news = std::exchange(first.has_news, false);
    if (first.has_arrivals()) note_ready(first);
    if (has_news) return first.member;
  }
  return nullptr;
}

}  // namespace verbspp::detail
