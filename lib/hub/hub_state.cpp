// SPDX-License-Identifier: Apache-2.0
#include "hub/hub_state.hpp"

#include <verbspp/queue/completion_queue_with.hpp>

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace verbspp::detail {

namespace {

constexpr const char* creating_hub = "channel_hub::create";

}  // namespace

hub_reference::hub_reference(const hub_reference& other) noexcept : state_(other.state_) {
  if (state_ != nullptr) state_->add_reference();
}

hub_reference::~hub_reference() {
  if (state_ != nullptr) state_->drop_reference();
}

void hub_reference::hand_over(continuation& call) const noexcept { state_->hand_over(call); }

hub_state::hub_state(protection_domain domain, completion_queue queue,
                     const hub_options& options) noexcept
    : domain_(std::move(domain)),
      queue_(std::move(queue)),
      waiting_(options.waiting),
      room_(queue_.capacity()),
      rows_(options.channels) {}

hub_state::~hub_state() {
  listener_.stop();
  if (timer_ >= 0) ::close(timer_);
  if (loop_.is_open()) completion_queue_access::state_of(queue_)->channel->wake_loops_by(-1);
}

result<hub_reference> hub_state::create(const protection_domain& domain, const message_pool* pool,
                                        const hub_options& options) noexcept {
  if (options.channels == 0 || options.channels > hub_rows::most)
    return error::out_of_range(creating_hub, "channels", options.channels,
                               "a hub has 1 to 65,535 channels");
  VERBSPP_TRY(queue, options.waiting.sleeps()
                         ? result<completion_queue>(waitable_completion_queue::create(
                               domain.context(), options.completions))
                         : completion_queue::create(domain.context(), options.completions));
  hub_reference made(new (std::nothrow) hub_state(domain, std::move(queue), options));
  if (!made) return error::from_errno(ENOMEM, creating_hub);
  VERBSPP_TRYV(made->start(pool, options));
  // The hub listens for the events that concern all channels; each channel adds its port.
  const auto& receives = made->receives();
  made->listener_.listen(domain.context(),
                         {.completion_queue = made->queue_.native_handle(),
                          .shared_receive_queue = receives ? receives->native_handle() : nullptr});
  return made;
}

result<void> hub_state::start(const message_pool* pool, const hub_options& options) noexcept {
  if (!rows_.allocate()) return error::from_errno(ENOMEM, creating_hub);
  VERBSPP_TRYV(events_.open(creating_hub));
  if (pool == nullptr) return success();
  if (pool->places() == nullptr)
    return error(error_kind::invalid_input, creating_hub, "this pool was moved from");
  if (pool->places()->domain() != domain_)
    return error(error_kind::invalid_input, creating_hub,
                 "the pool's memory is registered in another protection domain: create the pool "
                 "and the hub in the same one");
  if (options.receives == 0)
    return error::out_of_range(creating_hub, "receives", 0,
                               "a hub with a pool needs at least one posted receive: set "
                               "hub_options::receives or group_options::receives");
  if (!room_.take(options.receives))
    return error::above_limit(
        creating_hub, "receives", options.receives, room_.capacity(),
        "the completions of receives need room in the hub's completion queue: raise "
        "hub_options::completions, or lower hub_options::receives");
  const brief_guard guard(lock_);
  VERBSPP_TRYV(receives_.open(domain_, *pool, options.receives, options.refill));
  if (!is_watched_) rows_.end_care(hub_rows::care_always);
  return success();
}

result<void> hub_state::join(hub_member& member) noexcept {
  const brief_guard guard(lock_);
  hub_row* const row = rows_.add(member);
  if (row == nullptr)
    return error(error_kind::resource_exhausted, building_in_hub,
                 "the hub is full: create it for more channels (hub_options::channels, "
                 "group_options::spare or service_options::clients)");
  if (has_table()) row->keep(hub_row::held);
  return success();
}

result<void> hub_state::attach(hub_member& member, std::uint32_t number, unsigned port,
                               std::uint64_t requests) noexcept {
  const brief_guard guard(lock_);
  if (lost_ != 0) return poll_failure(lost_);
  if (number > queue_pair_number::maximum)
    return error(error_kind::not_supported, building_in_hub,
                 "the device has given a queue pair a number of more than 24 bits");
  // Completions that are still in the queue may belong to an earlier queue pair with this number,
  // so they are processed before the number leads to this channel.
  take_all_completions();
  VERBSPP_TRYV(member.make_room(requests));
  if (!room_.take(requests))
    return error::above_limit(
        building_in_hub, "completions", requests, room_.capacity() - room_.expected(),
        "the hub's completion queue has too little room for this channel's requests: create the "
        "hub with more completions (hub_options::completions), or build the channel with shorter "
        "queues");
  rows_.set_number(number, member);
  member.expected_ = requests;
  member.knows_failure_ = false;
  listener_.hear_port(port);
  return success();
}

void hub_state::detach(hub_member& member, bool is_destroyed) noexcept {
  const brief_guard guard(lock_);
  // Some devices keep the completions of a destroyed queue pair. These completions are processed
  // now, while the number of the queue pair still leads to this channel.
  take_all_completions();
  rows_.clear_number(member);
  // If the queue pair still exists, it may complete more requests, so the room stays reserved.
  if (is_destroyed) room_.give_back(member.expected_);
  member.expected_ = 0;
  hub_row& row = rows_.of(member);
  drop_arrivals(row);
  row.is_outdated = row.is_in_turn();
  receives_.refill();
}

void hub_state::leave(hub_member& member) noexcept {
  const brief_guard guard(lock_);
  // A channel that could not be built completely is still attached. Its queue pair has had no
  // requests, so it has no completions.
  rows_.clear_number(member);
  room_.give_back(std::exchange(member.expected_, 0));
  drop_arrivals(rows_.of(member));
  rows_.remove(rows_.of(member));
}

void hub_state::hold(const hub_member& member) noexcept {
  const brief_guard guard(lock_);
  rows_.of(member).keep(hub_row::held);
}

void hub_state::release(const hub_member& member) noexcept {
  {
    const brief_guard guard(lock_);
    if (has_table()) return;
    hub_row& row = rows_.of(member);
    row.end(hub_row::held);
    if (!row.has_arrivals()) return;
    rows_.note_ready(row);
  }
  wake_waiting();
}

bool hub_state::open_inbox(const hub_member& member) noexcept {
  const brief_guard guard(lock_);
  hub_row& row = rows_.of(member);
  if (row.has_inbox()) return false;
  row.keep(hub_row::for_inbox);
  return true;
}

void hub_state::drop_inbox(const hub_member& member) noexcept {
  {
    const brief_guard guard(lock_);
    hub_row& row = rows_.of(member);
    row.end(hub_row::for_inbox);
    if (row.messages.is_empty()) return;
    rows_.note_ready(row);
  }
  wake_waiting();
}

std::uint32_t hub_state::take_messages(const hub_member& member, message_list& into,
                                       bool& is_short) noexcept {
  const brief_guard guard(lock_);
  hub_row& row = rows_.of(member);
  std::uint32_t count = 0;
  for (; !row.messages.is_empty(); ++count) into.append(row.messages.take_first());
  is_short = receives_.is_due();
  return count;
}

result<void> hub_turn::keep(const hub_reference& hub,
                            std::unique_ptr<void, void (*)(void*)> table) noexcept {
  const brief_guard guard(hub->lock_);
  if (hub->has_table() || hub->rows_.size() != 0)
    return error(
        error_kind::busy, "hub_clients::create",
        "the hub already has channels, or has or had a table: create the table with a new hub");
  hub->table_ = std::move(table);
  hub->rows_.add_care(hub_rows::care_always);
  return success();
}

void hub_turn::admit(const hub_reference& hub, std::uint32_t index) noexcept {
  {
    const brief_guard guard(hub->lock_);
    hub->rows_[index].end(hub_row::held);
    hub->rows_.note_news(hub->rows_[index]);
  }
  hub->wake_waiting();
}

void hub_turn::close_table(const hub_reference& hub) noexcept {
  const brief_guard guard(hub->lock_);
  hub->is_table_closed_ = true;
}

void hub_turn::pause() noexcept { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

hub_turn hub_turn::of(const hub_reference& hub, std::uint32_t index) noexcept {
  const brief_guard guard(hub->lock_);
  hub_row& row = hub->rows_[index];
  hub_turn taken;
  if (row.member == nullptr || row.is_held()) return taken;
  if (!row.is_in_turn()) return hub->begin_turn(row);
  taken.id = row.id;
  return taken;
}

hub_turn hub_state::begin_turn(hub_row& row) noexcept {
  row.keep(hub_row::in_turn);
  row.has_news = false;
  hub_turn made;
  add_reference();
  made.hub = hub_reference(this);
  made.id = row.id;
  if (!row.has_inbox()) made.messages = std::exchange(row.messages, {});
  return made;
}

message hub_turn::next_message() noexcept {
  if (messages.is_empty()) [[unlikely]]
    return {};
  return hub_state::take_first(messages);
}

bool hub_turn::end() noexcept {
  {
    const brief_guard guard(hub->lock_);
    hub_row& row = hub->rows_[id.index];
    const bool exists = row.member != nullptr;
    if (exists && hub->is_table_closed_) return false;
    if (row.is_outdated) {
      while (!messages.is_empty()) static_cast<void>(hub_state::take_first(messages));
      hub->receives_.refill();
    }
    row.is_outdated = false;
    row.end(hub_row::in_turn);
    // Messages that were not taken in the turn precede those that arrived during the turn.
    if (!row.messages.is_empty()) messages.append(row.messages);
    row.messages = std::exchange(messages, {});
    if (!exists) {
      hub->drop_arrivals(row);
      hub->rows_.free(row);
      return true;
    }
    if (!row.has_arrivals()) return true;
    hub->rows_.note_ready(row);
  }
  hub->wake_waiting();
  return true;
}

void hub_state::drop_arrivals(hub_row& row) noexcept {
  row.has_news = false;
  while (!row.messages.is_empty()) static_cast<void>(take_first(row.messages));
}

std::uint32_t hub_state::size() noexcept {
  const brief_guard guard(lock_);
  return rows_.size();
}

std::uint64_t hub_state::room() noexcept {
  const brief_guard guard(lock_);
  return room_.capacity() - room_.expected();
}

std::uint32_t hub_state::posted() noexcept {
  const brief_guard guard(lock_);
  return receives_.posted();
}

}  // namespace verbspp::detail
