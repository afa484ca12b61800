// SPDX-License-Identifier: Apache-2.0
#include "channel/hub_rows.hpp"

#include <new>
#include <utility>

namespace verbspp::detail {

std::uint16_t hub_rows::empty[length];

hub_rows::~hub_rows() {
  if (!pages_) return;
  for (std::uint32_t i = 0; i < length; ++i)
    if (pages_.get()[i] != empty) delete[] pages_.get()[i];
}

bool hub_rows::allocate() noexcept {
  rows_ = owned<hub_row[]>(new (std::nothrow) hub_row[capacity_ + 1]);
  pages_ = owned<std::uint16_t*[]>(new (std::nothrow) std::uint16_t*[length]);
  if (pages_)
    for (std::uint32_t i = 0; i < length; ++i) pages_.get()[i] = empty;
  if (!rows_ || !pages_) return false;
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
  row.keeps = 0;
  row.next_free = std::exchange(first_free_, row.id.index);
}

bool hub_rows::set_number(std::uint32_t number, const hub_member& member) noexcept {
  std::uint16_t*& page = pages_.get()[number >> low_bits];
  if (page == empty) {
    auto* const made = new (std::nothrow) std::uint16_t[length]();
    if (made == nullptr) return false;
    page = made;
  }
  page[number & (length - 1)] = static_cast<std::uint16_t>(member.id.index + 1);
  return true;
}

void hub_rows::clear_number(std::uint32_t number, const hub_member& member) noexcept {
  if (&find(number) == &of(member)) pages_.get()[number >> low_bits][number & (length - 1)] = 0;
}

channel_core* hub_rows::take_news() noexcept {
  // Channels with messages, but without news, stay in the list.
  const hub_row* const last = last_ready_;
  for (bool is_end = false; first_ready_ != nullptr && !is_end;) {
    hub_row& first = take_ready();
    is_end = &first == last;
    if (first.member == nullptr || first.is_kept()) continue;
    const bool has_news = std::exchange(first.has_news, false);
    if (first.has_arrivals()) note_ready(first);
    if (has_news) return first.member->core;
  }
  return nullptr;
}

}  // namespace verbspp::detail
