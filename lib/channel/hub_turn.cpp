// SPDX-License-Identifier: Apache-2.0
#include "channel/hub_state.hpp"
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/detail/hub_turn.hpp>

#include <utility>

namespace verbspp::detail {

hub_table::~hub_table() = default;

bool hub_turn::has(const hub_reference& hub, const channel& one) noexcept {
  return one.id().generation != 0 && one.core().connection().settings().hub == hub;
}

result<void> hub_turn::keep(const hub_reference& hub, owned<hub_table> table) noexcept {
  return hub->keep(std::move(table));
}

void hub_turn::close_table(const hub_reference& hub) noexcept { hub->close_table(); }

void hub_turn::admit(const hub_reference& hub, std::uint32_t index) noexcept { hub->admit(index); }

result<hub_turn> hub_turn::wait(const hub_reference& hub, const wait_limit& limit) noexcept {
  return hub->wait_for_turn(limit);
}

hub_turn hub_turn::of(const hub_reference& hub, std::uint32_t index) noexcept {
  return hub->turn_of(index);
}

message hub_turn::next_message() noexcept { return hub->next_message(*this); }

bool hub_turn::end() noexcept { return hub->end_turn(*this); }

}  // namespace verbspp::detail
