// SPDX-License-Identifier: Apache-2.0
#include "channel/waiting.hpp"
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/inbox.hpp>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace verbspp {

namespace {

constexpr std::uint32_t largest_refill = detail::channel_core::most_receives_together;
constexpr const char* opening = "inbox::open";
constexpr const char* taking = "next message of an inbox";

/// As its handle would have it, which waits for nothing: the pool has the memory.
detail::request request_of(detail::receive_slot* slot) noexcept {
  detail::request made;
  made.slot = slot;
  made.keeps = true;
  made.operation = work_operation::receive;
  return made;
}

}  // namespace

inbox::inbox(detail::channel_core* core, message_pool pool, detail::owned<entry[]>&& entries,
             std::uint32_t depth, std::uint32_t refill) noexcept
    : core_(core),
      pool_(std::move(pool)),
      entries_(std::move(entries)),
      depth_(depth),
      refill_(refill) {
  // It may outlive the channel, as a handle may.
  core_->open_inbox();
}

inbox::inbox(inbox&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)),
      pool_(std::move(other.pool_)),
      entries_(std::move(other.entries_)),
      depth_(other.depth_),
      refill_(other.refill_),
      first_(other.first_),
      count_(std::exchange(other.count_, 0)) {}

inbox& inbox::operator=(inbox&& other) noexcept {
  if (this == &other) return *this;
  leave();
  core_ = std::exchange(other.core_, nullptr);
  pool_ = std::move(other.pool_);
  entries_ = std::move(other.entries_);
  depth_ = other.depth_;
  refill_ = other.refill_;
  first_ = other.first_;
  count_ = std::exchange(other.count_, 0);
  return *this;
}

inbox::~inbox() { leave(); }

void inbox::leave() noexcept {
  if (core_ == nullptr) return;
  while (count_ != 0) {
    const entry gone = pop();
    const detail::kept_memory memory{.keeper = pool_.places(), .place = gone.place};
    if (gone.slot->is_done()) {
      if (!gone.slot->is_lost()) detail::kept_memory(memory).let_go();
    } else {
      detail::receive_slots::keep(*gone.slot, memory);
    }
    core_->drop(request_of(gone.slot), false);
  }
  std::exchange(core_, nullptr)->drop_inbox();
}

result<inbox> inbox::open(channel& of, const message_pool& pool, inbox_options options) noexcept {
  return open(&of.core(), pool, options);
}

result<inbox> inbox::open(prepared_channel& of, const message_pool& pool,
                          inbox_options options) noexcept {
  return open(&of.core(), pool, options);
}

result<inbox> inbox::open(detail::channel_core* core, const message_pool& pool,
                          const inbox_options& options) noexcept {
  if (core->state() == channel_state::empty) return detail::channel_core::refusal_of_empty(opening);
  if (pool.places() == nullptr)
    return error(error_kind::invalid_input, opening, "this pool was moved from");
  if (pool.places()->domain() != core->connection().domain())
    return error(error_kind::invalid_input, opening,
                 "the pool's memory is registered with another protection domain than the "
                 "channel's");
  if (!core->receives().is_open()) return core->connection().refusal(detail::posting_receive);
  const std::uint32_t capacity = core->receives().capacity();
  if (options.depth > capacity)
    return error::above_limit(opening, "depth", options.depth, capacity,
                              "build the channel with more max_receive_work_requests");
  const std::uint32_t depth = options.depth != 0 ? options.depth : capacity;
  const std::uint32_t refill =
      std::clamp(options.refill, 1U, std::min(largest_refill, std::max(depth / 2, 1U)));
  detail::owned<entry[]> entries(new (std::nothrow) entry[depth]);
  if (!entries) return error::from_errno(ENOMEM, opening);
  inbox made(core, pool, std::move(entries), depth, refill);
  VERBSPP_TRYV(made.fill());
  return made;
}

VERBSPP_DATA_PATH inbox::entry inbox::pop() noexcept {
  const entry oldest = entries_.get()[first_];
  first_ = first_ + 1 < depth_ ? first_ + 1 : 0;
  --count_;
  return oldest;
}

result<std::uint32_t> inbox::post_some(std::uint32_t wanted) noexcept {
  detail::pool_places& places = *pool_.places();
  std::uint32_t taken[largest_refill];
  ibv_sge elements[largest_refill];
  detail::receive_slot* slots[largest_refill];
  const std::uint32_t count =
      places.take(taken, std::min({wanted, core_->receives().room(), largest_refill}));
  for (std::uint32_t i = 0; i < count; ++i)
    elements[i] = places.element(taken[i], places.place_size());
  std::uint32_t posted = count;
  const result<void> done = core_->post_receives(elements, slots, posted);
  for (std::uint32_t i = 0; i < posted; ++i) {
    const std::uint32_t last = first_ + count_++;
    entries_.get()[last < depth_ ? last : last - depth_] = {.slot = slots[i], .place = taken[i]};
  }
  for (std::uint32_t i = posted; i < count; ++i) places.give_back(taken[i]);
  VERBSPP_TRYV(done);
  return posted;
}

result<void> inbox::fill() noexcept {
  if (!core_->receives().is_open()) return core_->connection().refusal(detail::posting_receive);
  while (count_ < depth_ && is_due()) {
    VERBSPP_TRY(posted, post_some(std::min(refill_, depth_ - count_)));
    if (posted == 0) break;
  }
  return success();
}

std::optional<result<message>> inbox::next() noexcept {
  if (core_ == nullptr)
    return error(error_kind::invalid_input, taking, "this inbox was moved from");
  const auto is_done = [this] { return count_ != 0 && entries_.get()[first_].slot->is_done(); };
  while (!is_done() && core_->collect()) {
  }
  while (is_done()) {
    const entry oldest = pop();
    const bool is_lost = oldest.slot->is_lost();
    const auto result = core_->take(request_of(oldest.slot), call_limit::of_channel());
    if (!result.has_value()) {
      if (!is_lost) pool_.places()->give_back(oldest.place);
      continue;
    }
    // If that fails, the last message that there is will be followed by the reason.
    if (is_due()) static_cast<void>(fill());
    const completed_work done = result.assume_value();
    return std::optional<verbspp::result<message>>(std::in_place, std::in_place, pool_.places(),
                                                   oldest.place, done.byte_count().value_or(0),
                                                   done, channel_id());
  }
  const auto filled = fill();
  if (count_ == 0 && !filled.has_value()) return filled.assume_error();
  return std::nullopt;
}

result<message> inbox::wait(call_limit limit) noexcept {
  std::optional<result<message>> arrived = next();
  if (arrived) return std::move(*arrived);
  const wait_limit until = limit.begin(core_->connection().settings().default_limit);
  const auto look = [&] {
    arrived = next();
    if (arrived) return detail::sight::enough;
    // That places have come back to the pool wakes nobody.
    return is_due() ? detail::sight::nothing_yet : detail::sight::nothing;
  };
  VERBSPP_TRY(end, core_->wait_for_message(look, until));
  if (!arrived && end == wait_end::completions) arrived = next();
  if (arrived) return std::move(*arrived);
  return until.failure(taking, count_ != 0 ? "no message has arrived"
                                           : "the pool has no place for a message to arrive in");
}

}  // namespace verbspp
