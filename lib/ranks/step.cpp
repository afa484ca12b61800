// SPDX-License-Identifier: Apache-2.0
#include "ranks/step.hpp"

#include <sched.h>

#include <array>
#include <chrono>
#include <span>
#include <thread>
#include <utility>

namespace verbspp::detail {

namespace {

/// A rank that waits for a word that another writes has no event to sleep for.
constexpr auto nap = std::chrono::microseconds(50);
constexpr unsigned rounds_before_yield = 64;
/// How many values may be there, or on their way, that the receiver has not done with.
constexpr std::uint64_t places_of_values = 2;

}  // namespace

template <class Condition>
bool signals::step::wait_until(std::uint32_t for_rank, Condition holds) noexcept {
  const wait_limit spins_until(of_.waiting_.spins_for());
  for (unsigned round = 0;; ++round) {
    if (holds()) return true;
    if (round % rounds_before_yield != rounds_before_yield - 1) continue;
    peers_.serve();
    if (limit_.has_passed()) {
      // What came together with the limit was still in time.
      if (holds()) return true;
      fail(for_rank, limit_.failure(collective_step, "this rank did not come"), false);
      return false;
    }
    if (of_.waiting_.sleeps() && spins_until.has_passed())
      std::this_thread::sleep_for(nap);
    else
      sched_yield();
  }
}

void signals::step::check_tag(std::uint32_t from, std::uint64_t seen,
                              std::uint64_t number) noexcept {
  if (seen >> 16 == number && seen != tagged(number)) fail(from, other_step(), true);
}

void signals::step::write(std::uint32_t to, std::size_t from, std::size_t size,
                          std::size_t into) noexcept {
  if (failed_ || size == 0) return;
  const auto posted = [&]() -> result<void> {
    VERBSPP_TRY(place, of_.theirs_.get()[to]->slice(into, size));
    if (size <= largest_value && size <= peers_[to].capacities().max_inline_data) {
      std::array<std::byte, largest_value> bytes;
      take_bytes(bytes.data(), of_.data() + from, size);
      VERBSPP_TRYV(scope_[to].post_write(
          {.elements = inline_payload(std::span<const std::byte>(bytes).first(size)),
           .remote = place}));
    } else {
      VERBSPP_TRY(elements, of_.memory_->gather(from, size));
      VERBSPP_TRYV(scope_[to].post_write({.elements = elements, .remote = place}));
    }
    return success();
  }();
  if (!posted.has_value()) fail(to, posted.assume_error(), false);
}

void signals::step::write_word(std::uint32_t to, word source, std::size_t into,
                               std::uint64_t value) noexcept {
  show(of_.data() + of_.at(source, to), value);
  write(to, of_.at(source, to), sizeof value, into);
}

void signals::step::signal(std::uint32_t to) noexcept {
  const std::uint64_t number = ++of_.counts_.get()[to].signaled;
  if (!failed_)
    write_word(to, word::signal_to, of_.at(word::signal_from, of_.rank_), tagged(number));
}

void signals::step::await(std::uint32_t from) noexcept {
  const std::uint64_t wanted = ++of_.counts_.get()[from].awaited;
  if (failed_) return;
  const std::byte* const at = of_.data() + of_.at(word::signal_from, from);
  if (wait_until(from, [&]() noexcept { return look(at) >> 16 >= wanted; }))
    check_tag(from, look(at), wanted);
}

void signals::step::note(std::uint32_t with) noexcept {
  if (with == of_.rank_ || std::exchange(of_.is_named_.get()[with], true)) return;
  of_.partners_.get()[partners_++] = with;
}

void signals::step::expect(std::uint32_t from) noexcept {
  note(from);
  of_.is_expected_.get()[from] = true;
  ++of_.counts_.get()[from].expected;
}

void signals::step::begin() noexcept {
  const std::span<const std::uint32_t> partners(of_.partners_.get(), partners_);
  for (const std::uint32_t rank : partners) of_.is_named_.get()[rank] = false;
  if (!failed_ && peers_.is_any_due(partners)) {
    reached_.emplace(peers_.connect(partners, limit_));
    if (reached_->has_error()) {
      const group_error missing = reached_->error();
      fail(missing.peer().value_or(of_.rank_), missing, true);
    }
  }
  for (const std::uint32_t rank : partners) {
    if (!std::exchange(of_.is_expected_.get()[rank], false)) continue;
    // What this rank has not taken of earlier steps that failed, it never will.
    counts& with = of_.counts_.get()[rank];
    if (with.released + 1 < with.expected) give_back(rank, with.expected - 1);
  }
}

bool signals::step::has_room(std::uint32_t to) noexcept {
  if (failed_) return false;
  const std::byte* const at = of_.data() + of_.at(word::taken_by, to);
  const std::uint64_t number = of_.counts_.get()[to].given;
  return wait_until(to, [&]() noexcept { return look(at) + places_of_values >= number; });
}

void signals::step::write_number(std::uint32_t to) noexcept {
  if (failed_) return;
  const std::uint64_t number = of_.counts_.get()[to].given;
  write_word(to, word::number_to, of_.number_from(of_.rank_, number), tagged(number));
}

void signals::step::give(std::uint32_t to, std::size_t from, std::size_t size) noexcept {
  if (!has_room(to)) return;
  write(to, from, size, of_.value_from(of_.rank_, of_.counts_.get()[to].given));
  write_number(to);
}

const std::byte* signals::step::take(std::uint32_t from) noexcept {
  if (failed_) return nullptr;
  const std::uint64_t wanted = of_.counts_.get()[from].expected;
  const std::byte* const at = of_.data() + of_.number_from(from, wanted);
  const std::byte* const next = of_.data() + of_.number_from(from, wanted + 1);
  const bool has_come = wait_until(
      from, [&]() noexcept { return look(at) >> 16 >= wanted || look(next) >> 16 > wanted; });
  if (!has_come) return nullptr;
  const std::uint64_t seen = look(at);
  check_tag(from, seen, wanted);
  // Its next value has come, and it writes them in order.
  if (seen >> 16 != wanted)
    fail(from,
         error(error_kind::timed_out, collective_step,
               "this rank has given the step up, and is at a later one"),
         true);
  return failed_ ? nullptr : of_.data() + of_.value_from(from, wanted);
}

bool signals::step::take_into(std::uint32_t from, std::span<std::byte> value) noexcept {
  const std::byte* const taken = take(from);
  if (taken == nullptr) return false;
  take_bytes(value.data(), taken, value.size());
  release(from);
  return true;
}

void signals::step::release(std::uint32_t from) noexcept {
  give_back(from, of_.counts_.get()[from].expected);
}

void signals::step::give_back(std::uint32_t from, std::uint64_t number) noexcept {
  if (failed_) return;
  write_word(from, word::taken_to, of_.at(word::taken_by, of_.rank_), number);
  if (!failed_) of_.counts_.get()[from].released = number;
}

}  // namespace verbspp::detail
