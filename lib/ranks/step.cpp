// SPDX-License-Identifier: Apache-2.0
#include "ranks/step.hpp"

#include <verbspp/channel/detail/channel_access.hpp>
#include <verbspp/channel/detail/channel_core.hpp>

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <thread>
#include <utility>

namespace verbspp::detail {

namespace {

/// The time that a waiting rank sleeps before it reads the awaited word again. No event announces
/// that another rank has written the word.
constexpr auto nap = std::chrono::microseconds(50);
constexpr unsigned rounds_before_yield = 64;
/// The first interval is the one at which a waiting rank checks the connection, and whether others
/// have written farewells. The second is the one at which it writes 0 bytes to the rank that it
/// waits for, so that the device detects a lost connection.
constexpr auto time_between_looks = std::chrono::milliseconds(10);
constexpr auto time_between_probes = std::chrono::seconds(1);
/// The number of values that may be stored or in flight before the receiver releases them.
constexpr std::uint64_t places_of_values = 2;

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

void signals::step::look_for_lost(std::uint32_t for_rank, std::optional<lookout>& looks) noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (!looks) looks = {now + time_between_looks, now + time_between_probes};
  if (now < looks->next) return;
  looks->next = now + time_between_looks;
  heed_news(now);
  channel& with = peers_[for_rank];
  with.poll();
  if (const auto state = peers_.state_of(for_rank); !state.has_value())
    return fail(for_rank, state.assume_error(), certainty::lost);
  if (of_.has_gone_on(for_rank)) {
    check_farewell(for_rank);
    return fail(for_rank, given_up(), certainty::known);
  }
  if (now < looks->next_probe) return;
  looks->next_probe = now + time_between_probes;
  // The write of 0 bytes is not needed if a request is in flight, because that request detects a
  // lost connection as well, or if the limit ends the wait before the next such write would be due.
  const auto left = limit_.remaining();
  if (channel_access::core_of(with).sends().outstanding() != 0 ||
      (left && *left < time_between_probes))
    return;
  const auto nowhere = of_.other(for_rank).memory->slice(0, 0);
  if (!nowhere.has_value()) return;
  // Neither this rank nor the end of the step waits for the write, because the other rank may leave
  // once it has done its part.
  static_cast<void>(with.post_write({.elements = {}, .remote = nowhere.assume_value()}));
}

template <class Condition>
bool signals::step::wait_until(std::uint32_t for_rank, Condition holds,
                               const char* missing) noexcept {
  const wait_limit spins_until(of_.waiting_.spins_for());
  std::optional<lookout> looks;
  for (unsigned round = 0;; ++round) {
    if (holds()) return true;
    if (round % rounds_before_yield != rounds_before_yield - 1) continue;
    peers_.serve();
    look_for_lost(for_rank, looks);
    if (!has_failed() && !limit_.has_passed()) {
      if (of_.waiting_.sleeps() && spins_until.has_passed())
        std::this_thread::sleep_for(nap);
      else
        sched_yield();
      continue;
    }
    // Data that arrived together with the failure arrived in time.
    if (holds()) {
      failed_ = {.reached = std::move(failed_.reached)};
      return true;
    }
    fail(for_rank, limit_.failure(collective_step, missing), certainty::waited_for);
    return false;
  }
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

bool signals::step::has_send_room(std::uint32_t to) noexcept {
  channel& with = peers_[to];
  const channel_core& core = channel_access::core_of(with);
  // If the channel no longer accepts requests, posting one returns the cause.
  const auto takes = [&]() noexcept { return core.sends().has_room() || !with.is_connected(); };
  return wait_until(
      to, [&]() noexcept { return takes() || (with.poll(), takes()); },
      "the send queue to that rank is full: that rank's device has not acknowledged the earlier "
      "requests yet");
}

void signals::step::write(std::uint32_t to, std::size_t from, std::size_t size,
                          std::size_t into) noexcept {
  if (has_failed() || size == 0 || !has_send_room(to)) return;
  const auto posted = [&]() -> result<void> {
    VERBSPP_TRY(place, of_.other(to).memory->slice(into, size));
    if (size <= largest_value && size <= peers_[to].capacities().max_inline_data) {
      std::array<std::byte, largest_value> bytes;
      take_bytes(bytes.data(), of_.data() + from, size);
      VERBSPP_TRYV((*scope_)[to].post_write(
          {.elements = inline_payload(std::span<const std::byte>(bytes).first(size)),
           .remote = place}));
    } else {
      VERBSPP_TRY(elements, of_.memory_->gather(from, size));
      VERBSPP_TRYV((*scope_)[to].post_write({.elements = elements, .remote = place}));
    }
    return success();
  }();
  if (posted.has_value()) return;
  // The rank `to` is blamed only if it is not connected.
  const auto with = peers_[to].is_connected() ? std::nullopt : std::optional<std::uint32_t>(to);
  fail(with, posted.assume_error(), certainty::waited_for);
}

void signals::step::write_word(std::uint32_t to, signal_word source, std::size_t into,
                               std::uint64_t value) noexcept {
  show(of_.data() + of_.layout_.at(source, to), value);
  write(to, of_.layout_.at(source, to), sizeof value, into);
}

void signals::step::signal(std::uint32_t to) noexcept {
  const std::uint64_t number = ++of_.other(to).counts.signaled;
  if (!has_failed())
    write_word(to, signal_word::signal_to, of_.layout_.at(signal_word::signal_from, of_.rank_),
               tagged(number));
}

void signals::step::await(std::uint32_t from) noexcept {
  const std::uint64_t wanted = ++of_.other(from).counts.awaited;
  if (has_failed()) return;
  const std::byte* const at = of_.data() + of_.layout_.at(signal_word::signal_from, from);
  if (!wait_until(from, [&]() noexcept { return look(at) >> 16 >= wanted; })) return;
  const std::uint64_t seen = look(at);
  check_tag(from, seen, wanted);
  // A higher number belongs to a later step. The rank may have aborted this step before it began
  // the later one.
  if (seen >> 16 > wanted) check_farewell(from);
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

void signals::step::begin() noexcept {
  const std::span<const std::uint32_t> partners(of_.partners_.get(), partners_);
  for (const std::uint32_t rank : partners) of_.other(rank).is_named = false;
  if (!has_failed() && peers_.is_any_due(partners)) {
    failed_.reached.emplace(
        peers_.connect(partners, wait_limit(limit_.deadline(), news_or_stop(*this))));
    if (has_failed()) {
      // Because of this failure, no more ranks were connected, so the ranks that were not reached
      // are not to blame.
      failed_.reached.reset();
    } else if (failed_.reached->has_error()) {
      const group_error missing = failed_.reached->error();
      fail(missing.peer(), missing, certainty::known);
    }
  }
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
