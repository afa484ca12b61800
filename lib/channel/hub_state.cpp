// SPDX-License-Identifier: Apache-2.0
#include "channel/hub_state.hpp"

#include "channel/waiting.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/memory/detail/watched_memory.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

namespace verbspp {

namespace detail {

namespace {

/// The table of numbers stores an index plus 1 in 16 bits.
constexpr std::uint32_t most_channels = UINT16_MAX;
/// Additional room in the ring of a channel, for a failed shared receive, which belongs to no
/// request of the channel.
constexpr std::uint32_t extra_completions = 1;

/// The minimum time from ERR to the destruction of a queue pair that uses shared receives. If the
/// queue pair stopped in the middle of a message, the device completes the shared receive of that
/// message soon after (rxe does so in the background), unless the queue pair is destroyed before
/// that. The library cannot detect whether there is such a receive.
constexpr auto time_for_shared_receive = std::chrono::milliseconds(1);

constexpr const char* creating_hub = "channel_hub::create";
constexpr const char* building_in_hub = "build a channel of a hub";

std::uint64_t shared_request(std::uint32_t place) noexcept {
  return shared_receive << operation_at | place;
}
std::uint32_t place_of(std::uint64_t request) noexcept {
  return static_cast<std::uint32_t>(request);
}

}  // namespace

hub_reference::hub_reference(const hub_reference& other) noexcept : state_(other.state_) {
  if (state_ != nullptr) state_->add_reference();
}

hub_reference::~hub_reference() {
  if (state_ != nullptr) state_->drop_reference();
}

void hub_reference::hand_over(continuation& call) const noexcept { state_->hand_over(call); }

result<void> hub_member::make_room(std::uint64_t requests) noexcept {
  const std::uint64_t length = std::bit_ceil(requests + extra_completions);
  if (completions_ && length <= std::uint64_t{mask_} + 1) return success();
  owned<ibv_wc[]> longer(new (std::nothrow) ibv_wc[length]);
  if (!longer) return error::from_errno(ENOMEM, building_in_hub);
  assert(first_ == end_);
  completions_ = std::move(longer);
  mask_ = static_cast<std::uint32_t>(length - 1);
  return success();
}

void hub_member::put(const ibv_wc& completion) noexcept {
  assert(end_ - __atomic_load_n(&first_, __ATOMIC_ACQUIRE) <= mask_);
  completions_.get()[end_ & mask_] = completion;
  __atomic_store_n(&end_, end_ + 1, __ATOMIC_RELEASE);
}

std::uint16_t hub_state::number_table::empty[length];

hub_state::number_table::~number_table() {
  if (!pages_) return;
  for (std::uint32_t i = 0; i < length; ++i)
    if (pages_.get()[i] != empty) delete[] pages_.get()[i];
}

bool hub_state::number_table::allocate() noexcept {
  pages_ = owned<std::uint16_t*[]>(new (std::nothrow) std::uint16_t*[length]);
  if (!pages_) return false;
  for (std::uint32_t i = 0; i < length; ++i) pages_.get()[i] = empty;
  return true;
}

bool hub_state::number_table::set(std::uint32_t number, std::uint16_t index) noexcept {
  std::uint16_t*& page = pages_.get()[number >> low_bits];
  if (page == empty) {
    auto* const made = new (std::nothrow) std::uint16_t[length]();
    if (made == nullptr) return false;
    page = made;
  }
  page[number & (length - 1)] = static_cast<std::uint16_t>(index + 1);
  return true;
}

void hub_state::number_table::clear(std::uint32_t number) noexcept {
  std::uint16_t* const page = pages_.get()[number >> low_bits];
  if (page != empty) page[number & (length - 1)] = 0;
}

hub_state::hub_state(protection_domain domain, completion_queue queue,
                     const hub_options& options) noexcept
    : domain_(std::move(domain)),
      queue_(std::move(queue)),
      channels_(options.channels),
      waiting_(options.waiting),
      room_(queue_.capacity()) {}

hub_state::~hub_state() {
  listener_.stop();
  if (timer_ >= 0) ::close(timer_);
  if (loop_.is_open()) completion_queue_access::state_of(queue_)->channel->wake_loops_by(-1);
  if (!receives_) return;
  // Once the shared receive queue is destroyed, the device no longer accesses the posted places. If
  // the queue cannot be destroyed, these places are never reused.
  const auto released = std::move(*receives_).release();
  receives_.reset();
  if (!released.has_value()) return;
  const int errnum = errno_of(ibv_destroy_srq(released.assume_value()));
  report_destroy(released.assume_value(), errnum, "ibv_destroy_srq");
  if (errnum != 0) return;
  pool_places& places = *pool_->places();
  for (std::uint32_t place = 0; place < places.count(); ++place) {
    if (!is_posted_.get()[place]) continue;
    take_back(places, place);
    places.give_back_unfilled(place);
  }
}

result<hub_reference> hub_state::create(const protection_domain& domain, const message_pool* pool,
                                        const hub_options& options) noexcept {
  if (options.channels == 0 || options.channels > most_channels)
    return error::out_of_range(creating_hub, "channels", options.channels,
                               "a hub has 1 to 65,535 channels");
  VERBSPP_TRY(queue, options.waiting.sleeps()
                         ? result<completion_queue>(waitable_completion_queue::create(
                               domain.context(), options.completions))
                         : completion_queue::create(domain.context(), options.completions));
  hub_reference made(new (std::nothrow) hub_state(domain, std::move(queue), options));
  if (!made) return error::from_errno(ENOMEM, creating_hub);
  VERBSPP_TRYV(made->start(pool, options));
  made->listen();
  return made;
}

result<void> hub_state::start(const message_pool* pool, const hub_options& options) noexcept {
  rows_ = owned<row[]>(new (std::nothrow) row[channels_]);
  if (!rows_ || !numbers_.allocate()) return error::from_errno(ENOMEM, creating_hub);
  for (std::uint32_t i = 0; i + 1 < channels_; ++i) rows_.get()[i].next_free = i + 1;
  VERBSPP_TRYV(events_.open(creating_hub));
  if (pool == nullptr) return success();
  if (pool->places() == nullptr)
    return error(error_kind::invalid_input, creating_hub, "this pool was moved from");
  if (pool->places()->domain() != domain_)
    return error(error_kind::invalid_input, creating_hub,
                 "the pool's memory is registered in another protection domain: create the pool "
                 "and the hub in the same one");
  if (options.receives == 0)
    return error::out_of_range(
        creating_hub, "receives", 0,
        "a hub with a pool needs at least one posted receive: set hub_options::receives");
  depth_ = options.receives;
  refill_ =
      std::clamp(options.refill, 1U, std::min(receive_batch::largest, std::max(depth_ / 2, 1U)));
  due_below_ = depth_ - refill_ + 1;
  if (!room_.take(depth_))
    return error::above_limit(
        creating_hub, "receives", depth_, room_.capacity(),
        "the completions of receives need room in the hub's completion queue: raise "
        "hub_options::completions, or lower hub_options::receives");
  VERBSPP_TRY(wanted, work_request_count::from(depth_));
  VERBSPP_TRY(made, shared_receive_queue::create(domain_, wanted));
  is_posted_ = owned<bool[]>(new (std::nothrow) bool[pool->size()]());
  if (!is_posted_ || !batch_.allocate(*pool->places(), refill_))
    return error::from_errno(ENOMEM, creating_hub);
  receives_ = std::move(made);
  pool_ = *pool;
  const brief_guard guard(lock_);
  refill();
  if (posted_ == 0 && refill_failure_) return *refill_failure_;
  return success();
}

/// Listens for the events that concern all channels; each channel adds its port.
void hub_state::listen() noexcept {
  listener_.listen(domain_.context(),
                   {.completion_queue = queue_.native_handle(),
                    .shared_receive_queue = receives_ ? receives_->native_handle() : nullptr});
}

result<void> hub_state::join(hub_member& member) noexcept {
  const brief_guard guard(lock_);
  if (first_free_ == none)
    return error(error_kind::resource_exhausted, building_in_hub,
                 "the hub is full: create it for more channels "
                 "(hub_options::channels)");
  row& mine = rows_.get()[first_free_];
  mine.id = {.index = first_free_, .generation = mine.id.generation + 1};
  member.id = mine.id;
  first_free_ = mine.next_free;
  mine.member = &member;
  mine.keeps = has_table() ? row::held : 0;
  ++size_;
  return success();
}

result<void> hub_state::attach(hub_member& member, std::uint32_t number, unsigned port,
                               std::uint64_t requests) noexcept {
  const brief_guard guard(lock_);
  if (lost_ != 0) return poll_failure(lost_);
  // Completions that are still in the queue may belong to an earlier queue pair with this number,
  // so they are processed before the number leads to this channel.
  take_all_completions();
  VERBSPP_TRYV(member.make_room(requests));
  if (!room_.take(requests))
    return error::above_limit(building_in_hub, "completions", requests,
                              room_.capacity() - room_.expected(),
                              "the hub's completion queue has no room for another channel: "
                              "create the hub with more (hub_options::completions)");
  if (!numbers_.set(number, static_cast<std::uint16_t>(member.id.index))) {
    room_.give_back(requests);
    return error::from_errno(ENOMEM, building_in_hub);
  }
  member.expected_ = requests;
  member.number_ = number;
  member.knows_failure_ = false;
  listener_.hear_port(port);
  return success();
}

int hub_state::look() noexcept {
  if (!lock_.try_lock()) {
    if (!waiting_.sleeps()) return 0;
    // A thread that is about to sleep must do the polling itself. The thread that has the lock may
    // have polled before the last completion arrived, and that completion wakes only threads that
    // had requested an event before.
    lock_.lock();
  }
  take_all_completions();
  refill();
  const int lost = lost_;
  lock_.unlock();
  return lost;
}

void hub_state::take_all(std::chrono::steady_clock::time_point stopped_at) noexcept {
  const wait_limit until = stopped_at + time_for_shared_receive;
  for (;;) {
    {
      const brief_guard guard(lock_);
      take_all_completions();
    }
    if (!receives_ || until.has_passed()) return;
    sched_yield();
  }
}

void hub_state::detach(hub_member& member, bool is_destroyed) noexcept {
  const brief_guard guard(lock_);
  // Some devices keep the completions of a destroyed queue pair. They are processed now, while its
  // number still leads to this channel.
  take_all_completions();
  if (numbers_.find(member.number_) == member.id.index + 1) numbers_.clear(member.number_);
  // If the queue pair still exists, it may complete more requests, so the room stays reserved.
  if (is_destroyed) room_.give_back(member.expected_);
  member.expected_ = 0;
  member.number_ = 0;
  drop_arrivals(rows_.get()[member.id.index]);
  refill();
}

void hub_state::leave(hub_member& member) noexcept {
  const brief_guard guard(lock_);
  const std::uint32_t index = member.id.index;
  row& mine = rows_.get()[index];
  drop_arrivals(mine);
  mine.member = nullptr;
  --size_;
  if (!mine.is_in_turn()) free_index(index);
}

void hub_state::hold(const hub_member& member) noexcept {
  const brief_guard guard(lock_);
  rows_.get()[member.id.index].keeps |= row::held;
}

void hub_state::release(const hub_member& member) noexcept {
  {
    const brief_guard guard(lock_);
    if (has_table()) return;
    row& of = rows_.get()[member.id.index];
    of.keeps &= static_cast<std::uint8_t>(~row::held);
    if (!of.has_arrivals()) return;
    note_ready(of);
  }
  wake_waiting();
}

bool hub_state::open_inbox(const hub_member& member) noexcept {
  const brief_guard guard(lock_);
  row& of = rows_.get()[member.id.index];
  if (of.has_inbox()) return false;
  of.keeps |= row::for_inbox;
  return true;
}

void hub_state::drop_inbox(const hub_member& member) noexcept {
  {
    const brief_guard guard(lock_);
    row& of = rows_.get()[member.id.index];
    of.keeps &= static_cast<std::uint8_t>(~row::for_inbox);
    if (of.messages.is_empty()) return;
    note_ready(of);
  }
  wake_waiting();
}

hub_state::moved_messages hub_state::take_messages(const hub_member& member,
                                                   message_list& into) noexcept {
  const brief_guard guard(lock_);
  row& of = rows_.get()[member.id.index];
  moved_messages moved;
  for (pool_places& places = *pool_->places(); !of.messages.is_empty(); ++moved.count)
    into.append(places, of.messages.take_first(places));
  moved.is_short = is_due();
  return moved;
}

result<void> hub_state::keep(owned<hub_table> table) noexcept {
  const brief_guard guard(lock_);
  if (has_table() || size_ != 0)
    return error(error_kind::busy, "hub_clients::create",
                 "the hub already has channels or a table: create the table with a new hub");
  table_ = std::move(table);
  return success();
}

void hub_state::admit(std::uint32_t index) noexcept {
  {
    const brief_guard guard(lock_);
    rows_.get()[index].keeps &= static_cast<std::uint8_t>(~row::held);
    note_news(rows_.get()[index]);
  }
  wake_waiting();
}

void hub_state::close_table() noexcept {
  const brief_guard guard(lock_);
  is_table_closed_ = true;
}

hub_turn hub_state::turn_of(std::uint32_t index) noexcept {
  const brief_guard guard(lock_);
  row& wanted = rows_.get()[index];
  hub_turn taken;
  if (wanted.member == nullptr || (wanted.keeps & row::held) != 0) return taken;
  if (!wanted.is_in_turn()) return begin_turn(wanted);
  taken.id = wanted.member->id;
  return taken;
}

hub_turn hub_state::begin_turn(row& mine) noexcept {
  mine.keeps |= row::in_turn;
  mine.has_news = false;
  hub_turn made;
  add_reference();
  made.hub = hub_reference(this);
  made.id = mine.member->id;
  if (!mine.has_inbox()) made.messages = std::exchange(mine.messages, {});
  return made;
}

message hub_state::next_message(hub_turn& turn) noexcept {
  if (turn.messages.is_empty()) return {};
  return take_first(turn.messages);
}

bool hub_state::end_turn(hub_turn& turn) noexcept {
  const std::uint32_t index = turn.id.index;
  {
    const brief_guard guard(lock_);
    row& mine = rows_.get()[index];
    const bool exists = mine.member != nullptr;
    if (exists && is_table_closed_) return false;
    mine.keeps &= static_cast<std::uint8_t>(~row::in_turn);
    // Messages that were not taken in the turn precede those that arrived during the turn.
    if (pool_) turn.messages.append(*pool_->places(), mine.messages);
    mine.messages = std::exchange(turn.messages, {});
    if (!exists) {
      drop_arrivals(mine);
      free_index(index);
      return true;
    }
    if (!mine.has_arrivals()) return true;
    note_ready(mine);
  }
  wake_waiting();
  return true;
}

void hub_state::wake_waiting() noexcept {
  if (!waiting_.sleeps()) return;
  if (__atomic_load_n(&waiting_threads_, __ATOMIC_SEQ_CST) != 0) events_.wake();
  if (__atomic_load_n(&loops_wait_, __ATOMIC_RELAXED) &&
      __atomic_exchange_n(&loops_wait_, false, __ATOMIC_ACQ_REL))
    loop_.wake();
}

void hub_state::note_news(row& of) noexcept {
  of.has_news = true;
  note_ready(of);
}

void hub_state::free_index(std::uint32_t index) noexcept {
  row& old = rows_.get()[index];
  old.keeps = 0;
  old.next_free = std::exchange(first_free_, index);
}

void hub_state::drop_arrivals(row& of) noexcept {
  of.has_news = false;
  while (!of.messages.is_empty()) static_cast<void>(take_first(of.messages));
}

template <bool HasSlots>
void hub_state::hand_out_shared(const ibv_wc& completion, empty_slots& into) noexcept {
  const std::uint32_t place = place_of(completion.wr_id);
  pool_places& places = *pool_->places();
  take_back(places, place);
  const std::size_t next_index = numbers_.find(completion.qp_num);
  if (next_index == 0 || number_of(completion.status) != IBV_WC_SUCCESS) [[unlikely]]
    return fail_shared(completion);
  row& of = rows_.get()[next_index - 1];
  const completed_work work(completion);
  places.fill(place, work, of.id);
  if (HasSlots && of.keeps == 0 && of.messages.is_empty()) [[likely]]
    return into.fill(of.id, {&places, place, work.bytes_filled(0)});
  of.messages.append(places, place);
  if (of.has_inbox()) return note_news(of);
  note_ready(of);
}

/// Handles a shared receive that has failed, or whose channel no longer exists. Only the first
/// failure is passed to the channel.
void hub_state::fail_shared(const ibv_wc& completion) noexcept {
  pool_->places()->give_back_unfilled(place_of(completion.wr_id));
  row* const of = row_of(completion.qp_num);
  if (of == nullptr || std::exchange(of->member->knows_failure_, true)) return;
  of->member->put(completion);
  note_news(*of);
}

void hub_state::end_watch(pool_places& places, std::uint32_t place) noexcept {
  device_returns(reinterpret_cast<std::uintptr_t>(places.at(place)), places.place_size());
}

template <bool HasSlots>
hub_state::empty_slots hub_state::take_completions(empty_slots into) noexcept {
  constexpr std::size_t at_once = 32;
  ibv_wc completions[at_once];
  while ((!HasSlots || into.left != 0) && lost_ == 0) {
    const int room = static_cast<int>(HasSlots ? std::min(at_once, into.left) : at_once);
    const int filled = ibv_poll_cq(queue_.native_handle(), room, completions);
    for (int i = 0; i < filled; ++i) {
      if (is_shared_receive(completions[i].wr_id)) [[likely]]
        hand_out_shared<HasSlots>(completions[i], into);
      else
        hand_out(completions[i]);
    }
    if (filled < 0) [[unlikely]]
      lose_queue(filled);
    if (filled < room) break;
  }
  return into;
}

void hub_state::take_all_completions() noexcept { take_completions<false>({}); }

/// Records that polling has failed, and notifies each channel.
void hub_state::lose_queue(int returned) noexcept {
  __atomic_store_n(&lost_, returned, __ATOMIC_RELAXED);
  for (std::uint32_t i = 0; i < channels_; ++i)
    if (rows_.get()[i].member != nullptr) note_news(rows_.get()[i]);
}

void hub_state::hand_out(const ibv_wc& completion) noexcept {
  // The number of a destroyed queue pair has no row.
  row* const of = row_of(completion.qp_num);
  if (of == nullptr) return;
  of->member->put(completion);
  note_news(*of);
}

void hub_state::post_receives() noexcept {
  if (!receives_ || lost_ != 0) return;
  pool_places& places = *pool_->places();
  while (is_due()) {
    const std::uint32_t filled = batch_.fill(places, refill_, [this](std::uint32_t place) {
      is_posted_.get()[place] = true;
      return shared_request(place);
    });
    if (filled == 0) return;
    std::uint32_t count = filled;
    const int returned = batch_.post(places, count, [this](auto* list, auto* rejected) {
      return ibv_post_srq_recv(receives_->native_handle(), list, rejected);
    });
    for (std::uint32_t i = count; i < filled; ++i)
      is_posted_.get()[place_of(batch_.request(i).wr_id)] = false;
    if (places.is_watched()) [[unlikely]]
      batch_.hide(count);
    posted_ += count;
    if (returned != 0) {
      refill_failure_ = post_failure(returned, "ibv_post_srq_recv", 1, 1);
      return;
    }
    refill_failure_.reset();
  }
}

hub_state::row& hub_state::take_ready() noexcept {
  row& first = *first_ready_;
  first_ready_ = first.next_ready;
  first.is_ready = false;
  return first;
}

hub_state::empty_slots hub_state::take_listed(empty_slots into) noexcept {
  while (first_ready_ != nullptr && into.left != 0) {
    row& first = take_ready();
    // Since the channel was listed, it may have been destroyed or held, or a thread may have begun
    // its turn.
    if (first.member == nullptr || first.is_kept()) continue;
    if (std::exchange(first.has_news, false)) into.fill(first.id, {});
    if (first.messages.is_empty() || first.has_inbox()) continue;
    while (into.left != 0 && !first.messages.is_empty())
      into.fill(first.id, take_first(first.messages));
    // A channel with more arrivals is listed again, behind the others.
    if (!first.messages.is_empty()) note_ready(first);
  }
  return into;
}

std::uint32_t hub_state::take_arrivals(std::span<arrival> into) noexcept {
  empty_slots slots{.next = into.data(), .left = into.size()};
  if (first_ready_ != nullptr) [[unlikely]]
    slots = take_listed(slots);
  slots = take_completions<true>(slots);
  // The event that should wake another thread may belong to a completion that this thread has
  // taken. So the remaining completions are listed now, and the caller wakes the other thread for
  // them.
  if (slots.left == 0 && __atomic_load_n(&waiting_threads_, __ATOMIC_RELAXED) != 0) [[unlikely]]
    take_all_completions();
  refill();
  if (first_ready_ != nullptr) [[unlikely]]
    slots = take_listed(slots);
  return static_cast<std::uint32_t>(into.size() - slots.left);
}

hub_state::found hub_state::found_none(cause& failed) const noexcept {
  if (lost_ != 0) [[unlikely]]
    failed = poll_failure(lost_);
  else if (posted_ == 0 && refill_failure_) [[unlikely]]
    failed = refill_failure_;
  return {.is_short = is_due(), .has_more = calls_.has_some()};
}

hub_state::found hub_state::look_for_arrivals(std::span<arrival> into, cause& failed) noexcept {
  const brief_guard guard(lock_);
  const std::uint32_t count = take_arrivals(into);
  if (count == 0) return found_none(failed);
  return {.count = count, .has_more = has_more()};
}

hub_state::found hub_state::look_for_turn(hub_turn& taken, cause& failed) noexcept {
  const brief_guard guard(lock_);
  take_all_completions();
  refill();
  while (first_ready_ != nullptr) {
    row& first = take_ready();
    if (first.member == nullptr || first.is_kept() || !first.has_arrivals()) continue;
    taken = begin_turn(first);
    return {.count = 1, .has_more = has_more()};
  }
  return found_none(failed);
}

hub_state::found hub_state::look_for_news(channel_core*& next, cause& failed) noexcept {
  const brief_guard guard(lock_);
  take_all_completions();
  refill();
  next = next_with_news();
  if (next != nullptr) return {.count = 1};
  return found_none(failed);
}

/// Finds the first channel in the list that has news, and clears its news. \returns the channel;
/// null if no channel has news. The caller holds the lock.
channel_core* hub_state::next_with_news() noexcept {
  // Channels with messages, but without news, stay in the list, in their order.
  const row* const last = last_ready_;
  for (bool is_end = false; first_ready_ != nullptr && !is_end;) {
    row& first = take_ready();
    is_end = &first == last;
    if (first.member == nullptr || first.is_kept()) continue;
    const bool has_news = std::exchange(first.has_news, false);
    if (first.has_arrivals()) note_ready(first);
    if (has_news) return first.member->core;
  }
  return nullptr;
}

template <class Find>
result<hub_state::found> hub_state::poll_with(Find find, bool takes_events) noexcept {
  cause failed;
  found seen = find(failed);
  if (seen.count == 0 && !failed && takes_events &&
      __atomic_load_n(&is_watching_, __ATOMIC_RELAXED)) {
    take_events();
    seen = find(failed);
  }
  if (seen.count == 0 && !failed && has_new_failure()) [[unlikely]] {
    __atomic_store_n(&failures_told_, listener_.times_heard(), __ATOMIC_RELAXED);
    failed = failure_told_to(listener_);
  }
  if (failed) [[unlikely]]
    return *failed;
  if (seen.has_more) [[unlikely]]
    do_more();
  return seen;
}

result<std::span<arrival>> hub_state::poll(std::span<arrival> into) noexcept {
  VERBSPP_TRY(seen, poll_with([&](cause& failed) { return look_for_arrivals(into, failed); }));
  return into.first(seen.count);
}

result<void> hub_state::poll_channels() noexcept {
  if (calls_.has_some()) calls_.run();
  channel_core* next = nullptr;
  // If there is an event loop, it has already read the events, in `request_notification`.
  VERBSPP_TRYV(poll_with([&](cause& failed) { return look_for_news(next, failed); }, !has_loop_));
  // Visits at most as many channels as the hub has, because their continuations may cause news
  // again and again.
  for (std::uint32_t left = size(); next != nullptr;) {
    next->poll_found();
    const brief_guard guard(lock_);
    next = --left != 0 ? next_with_news() : nullptr;
  }
  return success();
}

result<hub_turn> hub_state::poll_for_turn() noexcept {
  hub_turn taken;
  VERBSPP_TRYV(poll_with([&](cause& failed) { return look_for_turn(taken, failed); }));
  return taken;
}

result<std::span<arrival>> hub_state::wait(std::span<arrival> into, call_limit limit) noexcept {
  lock_.lock();
  const std::uint32_t count = take_arrivals(into);
  const bool is_all = !has_more();
  lock_.unlock();
  if (count == 0) [[unlikely]]
    return wait_longer(into, limit);
  if (!is_all) [[unlikely]]
    do_more();
  return into.first(count);
}

std::uint32_t hub_state::size() noexcept {
  const brief_guard guard(lock_);
  return size_;
}

std::uint64_t hub_state::room() noexcept {
  const brief_guard guard(lock_);
  return room_.capacity() - room_.expected();
}

std::uint32_t hub_state::posted() noexcept {
  const brief_guard guard(lock_);
  return posted_;
}

}  // namespace detail

// These functions of `channel_hub` are here because the functions that they call are inlined.

namespace {

bool has_objection(const detail::hub_state* hub, std::span<arrival> into) noexcept {
  return hub == nullptr || into.empty() || hub->has_table();
}

/// Returns the error for a call that cannot return arrivals.
error objection(const detail::hub_state* hub, std::span<arrival> into) noexcept {
  constexpr const char* polling = "poll a hub";
  if (hub == nullptr) return {error_kind::invalid_input, polling, "this hub was moved from"};
  if (into.empty()) return detail::no_slots(polling);
  return {error_kind::invalid_input, polling,
          "the hub's channels belong to a table of clients: call the table's wait instead"};
}

}  // namespace

result<std::span<arrival>> channel_hub::poll(std::span<arrival> into) const noexcept {
  if (has_objection(state_.get(), into)) [[unlikely]]
    return objection(state_.get(), into);
  return state_->poll(into);
}

result<std::span<arrival>> channel_hub::wait(std::span<arrival> into,
                                             call_limit limit) const noexcept {
  if (has_objection(state_.get(), into)) [[unlikely]]
    return objection(state_.get(), into);
  return state_->wait(into, limit);
}

}  // namespace verbspp
