// SPDX-License-Identifier: Apache-2.0
#include "ranks/step.hpp"

#include <verbspp/core/detail/channel_core.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <new>
#include <span>
#include <utility>

namespace verbspp::detail {

namespace {

/// A waiting rank checks the connection, and looks for farewells of other ranks, at the first of
/// these intervals. At the second, it writes 0 bytes to the rank that it waits for, so that the
/// device detects a lost connection.
constexpr auto time_between_looks = std::chrono::milliseconds(10);
constexpr auto time_between_probes = std::chrono::seconds(1);
/// The number of values that may be stored or in flight before the receiver releases them.
constexpr std::uint64_t places_of_values = 2;
/// The longest time after which an event loop continues a step. The loop has to poll, because no
/// event announces that another rank has written the awaited word.
constexpr auto longest_pause_of_loop = std::chrono::milliseconds(1);
/// The maximum time for which a step that must not block reads the addresses of other ranks from
/// the bootstrap in one call. They should already be available there.
constexpr auto longest_look_up = std::chrono::milliseconds(200);
constexpr auto time_between_look_ups = std::chrono::seconds(1);

}  // namespace

void signals::step::heed_news(std::chrono::steady_clock::time_point now) noexcept {
  if (has_failed() || now < next_look_at_news_) return;
  next_look_at_news_ = now + time_between_looks;
  const auto is_of_a_limit = [](error_kind kind) {
    return kind == error_kind::timed_out || kind == error_kind::cancelled;
  };
  for (const std::uint32_t rank : ranks_) {
    const auto told = of_.farewell_of(rank, ranks_);
    if (!told || (!told->is_lost && !told->has_refused && is_of_a_limit(told->kind))) continue;
    return heed(rank, *told);
  }
}

signals::step::step(signals& of, group& peers, const peer_list& ranks, std::uint16_t tag,
                    const wait_limit& limit, blocks may_block,
                    const std::optional<error>& left_out) noexcept
    : of_(of),
      peers_(peers),
      ranks_(ranks),
      tag_(tag),
      may_block_(may_block == blocks::yes),
      whole_(limit) {
  of_.is_in_step_ = true;
  if (!left_out)
    scopes_ = owned<std::optional<channel_scope>[]>(new (std::nothrow)
                                                        std::optional<channel_scope>[of_.size_]);
  if (scopes_) {
    of_.join(ranks, tag);
    return;
  }
  for (const std::uint32_t rank : ranks) ++of_.other(rank).counts.joined;
  leave_out(left_out ? *left_out : error::from_errno(ENOMEM, collective_step));
}

void signals::step::note_wait(std::chrono::steady_clock::time_point now) noexcept {
  if (!looks_) looks_ = {now, now + time_between_looks, now + time_between_probes};
}

void signals::step::look_for_lost(std::uint32_t for_rank) noexcept {
  const auto now = std::chrono::steady_clock::now();
  note_wait(now);
  if (now < looks_->next) return;
  looks_->next = now + time_between_looks;
  heed_news(now);
  if (for_rank >= peers_.size()) return fail(for_rank, not_of_the_world(), certainty::known);
  channel& with = peers_[for_rank];
  channel_core& core = with.core();
  // Polling the channel would also call the program's continuations, which may destroy a session.
  if (with.is_connected()) core.collect();
  if (const auto state = peers_.state_of(for_rank); !state.has_value())
    return fail(for_rank, state.assume_error(), certainty::lost);
  // Between two calls of `advance`, the program may have replaced the channel.
  if (of_.place_at(peers_, for_rank) == nullptr)
    return fail(for_rank, not_of_the_world(), certainty::known);
  if (of_.has_gone_on(for_rank)) {
    check_farewell(for_rank);
    return fail(for_rank, given_up(), certainty::known);
  }
  if (now < looks_->next_probe) return;
  looks_->next_probe = now + time_between_probes;
  // The write of 0 bytes is not needed if a request is in flight, because that request detects a
  // lost connection as well, or if the limit ends the wait before the next such write would be due.
  const auto left = limit_.remaining();
  if (core.sends().outstanding() != 0 || (left && *left < time_between_probes)) return;
  const auto nowhere = of_.other(for_rank).memory->slice(0, 0);
  if (!nowhere.has_value()) return;
  // Nothing waits for this write, not even the end of the step, because the other rank may leave
  // once it has done its part.
  static_cast<void>(with.post_write({.elements = {}, .remote = nowhere.assume_value()}));
}

template <class Condition>
bool signals::step::is_over(std::uint32_t for_rank, bool checks, Condition holds,
                            const char* missing) noexcept {
  bool is_done = holds();
  if (!is_done) {
    if (!checks) return false;
    peers_.serve();
    look_for_lost(for_rank);
    if (!has_failed() && !limit_.has_passed()) return false;
    // Data that arrived together with the failure arrived in time.
    is_done = holds();
    if (is_done)
      failed_ = {.reached = std::move(failed_.reached)};
    else
      fail(for_rank, limit_.failure(collective_step, missing), certainty::waited_for);
  }
  looks_.reset();
  return true;
}

wait_limit::time_point signals::step::next_look() const noexcept {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds waited = looks_ ? now - looks_->begin : time_between_polls;
  return now +
         std::clamp<std::chrono::nanoseconds>(waited, time_between_polls, longest_pause_of_loop);
}

void signals::step::check_tag(std::uint32_t from, std::uint64_t seen,
                              std::uint64_t number) noexcept {
  if (seen >> 16 == number && seen != tagged(number)) fail(from, other_step(), certainty::known);
}

void signals::step::check_farewell(std::uint32_t from) noexcept {
  if (const auto why = of_.farewell_of(from, ranks_)) heed(from, *why);
}

void signals::step::heed(std::uint32_t from, const farewell& why) noexcept {
  if (has_failed()) return;
  failed_.is_itself_lost = why.is_lost && why.culprit == from;
  certainty how = why.has_refused ? certainty::refused : certainty::known;
  if (why.is_lost && !failed_.is_itself_lost) how = certainty::lost;
  fail(why.culprit, told_by(from, why.culprit, why.kind, why.is_lost), how);
}

bool signals::step::may_post(std::uint32_t to, bool checks) noexcept {
  // If the program has moved the group, posting returns the cause.
  if (has_failed() || to >= peers_.size()) return true;
  const channel& with = peers_[to];
  channel_core& core = with.core();
  // If the channel no longer accepts requests, posting one returns the cause.
  const auto takes = [&]() noexcept { return core.sends().has_room() || !with.is_connected(); };
  return is_over(
      to, checks, [&]() noexcept { return takes() || (core.collect(), takes()); },
      "the send queue to that rank is full: that rank's device has not acknowledged the earlier "
      "requests yet");
}

void signals::step::post_write(std::uint32_t to, std::size_t from, std::size_t size,
                               std::size_t into) noexcept {
  if (has_failed()) return;
  const place* const theirs = of_.place_at(peers_, to);
  if (theirs == nullptr) return fail(to, not_of_the_world(), certainty::known);
  const auto posted = [&]() -> result<void> {
    VERBSPP_TRY(place, theirs->slice(into, size));
    std::optional<channel_scope>& scope = scopes_.get()[to];
    if (!scope) scope.emplace(peers_[to].core(), whole_);
    if (size <= largest_value && size <= peers_[to].capacities().max_inline_data) {
      std::array<std::byte, largest_value> bytes;
      take_bytes(bytes.data(), of_.data() + from, size);
      VERBSPP_TRYV(scope->post_write(
          {.elements = inline_payload(std::span<const std::byte>(bytes).first(size)),
           .remote = place}));
    } else {
      VERBSPP_TRY(elements, of_.memory_->gather(from, size));
      VERBSPP_TRYV(scope->post_write({.elements = elements, .remote = place}));
    }
    return success();
  }();
  if (posted.has_value()) return;
  // The rank `to` is blamed only if it is not connected.
  const auto with = peers_[to].is_connected() ? std::nullopt : std::optional<std::uint32_t>(to);
  fail(with, posted.assume_error(), certainty::waited_for);
}

void signals::step::write(std::uint32_t to, std::size_t from, std::size_t size,
                          std::size_t into) noexcept {
  if (size == 0) return;
  drive([&](bool checks) noexcept { return may_post(to, checks); });
  post_write(to, from, size, into);
}

void signals::step::write_word(std::uint32_t to, signal_word source, std::size_t into,
                               std::uint64_t value) noexcept {
  show(of_.data() + of_.layout_.at(source, to), value);
  write(to, of_.layout_.at(source, to), sizeof value, into);
}

bool signals::step::signal(std::uint32_t to, bool checks) noexcept {
  if (!may_post(to, checks)) return false;
  const std::uint64_t number = ++of_.other(to).counts.signaled;
  if (has_failed()) return true;
  const std::size_t from = of_.layout_.at(signal_word::signal_to, to);
  show(of_.data() + from, tagged(number));
  post_write(to, from, sizeof number, of_.layout_.at(signal_word::signal_from, of_.rank_));
  return true;
}

bool signals::step::await(std::uint32_t from, bool checks) noexcept {
  std::uint64_t& awaited = of_.other(from).counts.awaited;
  const std::uint64_t wanted = awaited + 1;
  const std::byte* const at = of_.data() + of_.layout_.at(signal_word::signal_from, from);
  if (!has_failed() && !is_over(from, checks, [&]() noexcept { return look(at) >> 16 >= wanted; }))
    return false;
  awaited = wanted;
  if (has_failed()) return true;
  const std::uint64_t seen = look(at);
  check_tag(from, seen, wanted);
  // A higher number belongs to a later step. The rank may have aborted this step before it began
  // the later one.
  if (seen >> 16 > wanted) check_farewell(from);
  return true;
}

void signals::step::note(std::uint32_t with) noexcept {
  if (with == of_.rank_ || std::exchange(of_.other(with).is_named, true)) return;
  of_.partners_.get()[partners_++] = with;
}

void signals::step::expect(std::uint32_t from) noexcept {
  note(from);
  of_.other(from).is_expected = true;
  ++of_.other(from).counts.expected;
}

bool signals::step::has_begun_to_connect(std::span<const std::uint32_t> partners) noexcept {
  const wait_limit whole = connecting_limit();
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_up_ && !whole.has_passed()) {
    peers_.serve();
    return false;
  }
  const wait_limit until = may_block_ ? whole : whole.no_later_than(now + longest_look_up);
  auto begun = peers_.connector()->begin(peers_, partners, until);
  if (!begun.has_value()) {
    leave_out(begun.assume_error());
    return true;
  }
  connecting_.emplace(std::move(begun).assume_value());
  if (may_block_ || !until.has_passed() || whole.has_passed()) return true;
  const auto results = std::span(connecting_->results.get(), connecting_->size);
  if (std::ranges::all_of(results, [](const auto& each) { return each.result.has_value(); }))
    return true;
  // The addresses that were read are kept, so the next attempt continues with the others. In the
  // meantime, the event loop serves its other sources.
  connecting_.reset();
  note_wait(now);
  next_look_up_ = now + time_between_look_ups;
  peers_.serve();
  return false;
}

void signals::step::note_connected() noexcept {
  // After another failure, no more ranks were connected, so the ranks that were not reached are not
  // to blame.
  if (has_failed()) return;
  failed_.reached.emplace(connecting_->take_results());
  if (failed_.reached->has_value()) return;
  const group_error missing = failed_.reached->error();
  fail(missing.peer(), missing, certainty::known);
}

bool signals::step::begin(bool checks) noexcept {
  if (stage_ >= stage::acting) return true;
  const std::span<const std::uint32_t> partners(of_.partners_.get(), partners_);
  if (stage_ == stage::beginning) {
    for (const std::uint32_t rank : partners) of_.other(rank).is_named = false;
    if (!has_failed() && peers_.is_any_due(partners) && !has_begun_to_connect(partners))
      return false;
    stage_ = stage::connecting;
  }
  if (peers_.connector() == nullptr) connecting_.reset();
  if (connecting_) {
    // For a blocking step, no wait is noted here, so `may_sleep` stays false: if the step slept
    // while it connects, its answers to the other ranks would be late.
    if (checks && !may_block_) note_wait(std::chrono::steady_clock::now());
    if (!checks || !peers_.connector()->advance(peers_, *connecting_, connecting_limit()))
      return false;
    note_connected();
    connecting_.reset();
    looks_.reset();
  }
  stage_ = stage::acting;
  // The functions that wait for a partner, or that write to it, require that the partner's memory
  // is known.
  for (const std::uint32_t rank : partners)
    if (!has_failed() && of_.place_at(peers_, rank) == nullptr)
      fail(rank, not_of_the_world(), certainty::known);
  for (const std::uint32_t rank : partners) {
    if (!std::exchange(of_.other(rank).is_expected, false)) continue;
    // This rank will never read the values of earlier, failed steps, so it releases their places.
    signal_counts& with = of_.other(rank).counts;
    if (with.released + 1 < with.expected) give_back(rank, with.expected - 1);
  }
  return true;
}

void signals::step::abort() noexcept {
  const auto soon = std::chrono::steady_clock::now() + step_limits::longest_news;
  whole_ = whole_.no_later_than(soon);
  limits_.end_by(soon);
  leave_out(aborted());
}

bool signals::step::may_end_requests() noexcept {
  if (may_block_ || !scopes_ || whole_.has_passed()) return true;
  const bool has_finished = std::ranges::all_of(ranks_, [this](std::uint32_t rank) noexcept {
    std::optional<channel_scope>& scope = scopes_.get()[rank];
    return !scope || scope->has_finished();
  });
  if (!has_finished) peers_.serve();
  return has_finished;
}

std::optional<group_error> signals::step::end_requests() noexcept {
  const owned<std::optional<channel_scope>[]> ended = std::move(scopes_);
  if (!ended) return std::nullopt;
  std::optional<std::uint32_t> first;
  transport_error cause;
  std::uint32_t failed = 0;
  for (const std::uint32_t rank : ranks_) {
    std::optional<channel_scope>& scope = ended.get()[rank];
    const auto left = scope ? scope->failure(false) : std::nullopt;
    if (!left || failed++ != 0) continue;
    first = rank;
    cause = *left;
  }
  if (!first) return std::nullopt;
  return group_error(*first, cause, failed);
}

bool signals::step::end() noexcept {
  if (has_ended()) return true;
  const auto find_blame = [this](failed_step&& failed) noexcept {
    blame_.emplace(of_, peers_, ranks_, tag_, limits_, std::move(failed));
  };
  // The blame is determined before the step waits for its requests, because the requests may take
  // until the limit.
  if (std::exchange(stage_, stage::ending) != stage::ending) {
    if (has_failed()) find_blame(std::move(failed_));
    note_wait(std::chrono::steady_clock::now());
  }
  if (blame_ && !blame_->advance()) return false;
  if (!may_end_requests()) return false;
  if (const auto failed = end_requests(); failed && !blame_) {
    find_blame({.has_failed = true, .with = failed->peer(), .cause = *failed});
    return end();
  }
  stage_ = stage::over;
  of_.is_in_step_ = false;
  return true;
}

group_results signals::step::results() && noexcept {
  if (!blame_) return {owned<peer_result[]>(), 0};
  return std::move(*blame_).results();
}

bool signals::step::has_room(std::uint32_t to) noexcept {
  if (has_failed()) return false;
  const std::byte* const at = of_.data() + of_.layout_.at(signal_word::taken_by, to);
  const std::uint64_t number = of_.other(to).counts.given;
  return wait_until(to, [&]() noexcept { return look(at) + places_of_values >= number; });
}

void signals::step::write_number(std::uint32_t to) noexcept {
  if (has_failed()) return;
  const std::uint64_t number = of_.other(to).counts.given;
  write_word(to, signal_word::number_to, of_.layout_.number_from(of_.rank_, number),
             tagged(number));
}

void signals::step::give(std::uint32_t to, std::size_t from, std::size_t size) noexcept {
  if (!has_room(to)) return;
  write(to, from, size, of_.layout_.value_from(of_.rank_, of_.other(to).counts.given));
  write_number(to);
}

const std::byte* signals::step::take(std::uint32_t from) noexcept {
  if (has_failed()) return nullptr;
  const std::uint64_t wanted = of_.other(from).counts.expected;
  const std::byte* const at = of_.data() + of_.layout_.number_from(from, wanted);
  const std::byte* const next = of_.data() + of_.layout_.number_from(from, wanted + 1);
  const bool has_come = wait_until(
      from, [&]() noexcept { return look(at) >> 16 >= wanted || look(next) >> 16 > wanted; });
  if (!has_come) return nullptr;
  const std::uint64_t seen = look(at);
  check_tag(from, seen, wanted);
  // A different number means that a later value of the rank has arrived. Since a rank writes its
  // values in order, the rank has aborted this step.
  if (seen >> 16 != wanted) check_farewell(from);
  if (seen >> 16 != wanted) fail(from, given_up(), certainty::known);
  return has_failed() ? nullptr : of_.data() + of_.layout_.value_from(from, wanted);
}

bool signals::step::take_into(std::uint32_t from, std::span<std::byte> value) noexcept {
  const std::byte* const taken = take(from);
  if (taken == nullptr) return false;
  take_bytes(value.data(), taken, value.size());
  release(from);
  return true;
}

void signals::step::release(std::uint32_t from) noexcept {
  give_back(from, of_.other(from).counts.expected);
}

void signals::step::give_back(std::uint32_t from, std::uint64_t number) noexcept {
  if (has_failed()) return;
  write_word(from, signal_word::taken_to, of_.layout_.at(signal_word::taken_by, of_.rank_), number);
  if (!has_failed()) of_.other(from).counts.released = number;
}

}  // namespace verbspp::detail
