// SPDX-License-Identifier: Apache-2.0
#include "ranks/blame.hpp"

#include "ranks/step.hpp"
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/work/work_completion.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

namespace verbspp::detail {

namespace {

[[nodiscard]] error missing(const error& cause, const char* how) noexcept {
  return {cause.kind() == error_kind::cancelled ? error_kind::cancelled : error_kind::timed_out,
          collective_step, how};
}

/// The result that is reported for a rank that is not to blame.
[[nodiscard]] completed_work no_failure() noexcept {
  return {number_of(work_operation::rdma_read), 0, 0, 0};
}

}  // namespace

signals::blame::blame(signals& of, group& peers, const peer_list& ranks, std::uint16_t tag,
                      const step_limits& limits, failed_step failed) noexcept
    : of_(of),
      peers_(peers),
      ranks_(ranks),
      tag_(tag),
      limits_(limits),
      failed_(std::move(failed)),
      is_over_(limits.waiting().has_passed()) {
  begin();
}

peer_result& signals::blame::result_of(std::uint32_t rank) noexcept {
  return *std::ranges::find(told_, rank, &peer_result::peer);
}

void signals::blame::begin() noexcept {
  if (!failed_.with) {
    own_cause_ = failed_.cause;
    return tell_own(failed_.cause.kind());
  }
  if (is_lost(*failed_.with)) failed_.how = certainty::lost;
  all_ = owned<peer_result[]>(new (std::nothrow) peer_result[ranks_.size()]);
  if (!all_) {
    own_cause_ = error::from_errno(ENOMEM, collective_step);
    return tell_without_results(*own_cause_);
  }
  told_ = {all_.get(), ranks_.size()};
  const std::uint32_t* next = ranks_.begin();
  for (peer_result& each : told_) {
    each = {*next++, no_failure()};
    if (const auto trouble = trouble_with(each.peer)) each.result = *trouble;
  }
  asks_ = is_over_ || failed_.how != certainty::lost;
  if (asks_)
    ask();
  else
    conclude(false);
}

bool signals::blame::advance() noexcept {
  if (asks_) {
    if (!has_answers()) return false;
    asks_ = false;
    conclude(has_all_answers_);
  }
  return has_told();
}

void signals::blame::conclude(bool has_asked_all) noexcept {
  // The failed rank has reported that a connection to this rank is lost. If another rank has an
  // error as well, that error is taken as the cause.
  if (failed_.is_itself_lost)
    for (const peer_result& each : told_) {
      if (each.peer == *failed_.with || each.result.has_value()) continue;
      result_of(*failed_.with).result = no_failure();
      failed_.with = each.peer;
      break;
    }
  explain();
  const bool is_guess =
      std::ranges::all_of(told_, [](const peer_result& each) { return each.result.has_value(); }) &&
      guess();
  // A guess is reported to the others only if each rank that was to be asked has answered or has an
  // error, because a rank without an answer may be the culprit.
  if (!own_cause_ && (!is_guess || has_asked_all)) tell(reason());
}

void signals::blame::tell(const farewell& why) noexcept {
  farewells_ = of_.post_farewells(peers_, ranks_, why);
  begun_at_ = std::chrono::steady_clock::now();
}

bool signals::blame::has_told() noexcept {
  const std::span<kept_pending> left(of_.unwaited_.get(), farewells_);
  const auto is_on_its_way = [](kept_pending& each) {
    if (each.has_request() && each.poll()) each = kept_pending();
    return each.has_request();
  };
  if (std::ranges::count_if(left, is_on_its_way) != 0 &&
      std::chrono::steady_clock::now() < limits_.news_until(begun_at_))
    return false;
  for (kept_pending& each : left) each = kept_pending();
  farewells_ = 0;
  return true;
}

void signals::blame::tell_without_results(const error& lacking) noexcept {
  // If this rank only waited for another one, the cause is taken from that rank's farewell. Without
  // a farewell, this rank reports only that it lacks memory.
  if (failed_.how != certainty::waited_for)
    tell(reason_of_waiting());
  else if (const auto why = of_.farewell_of(*failed_.with, ranks_))
    tell(*why);
  else
    tell_own(lacking.kind());
}

void signals::blame::ask() noexcept {
  begun_at_ = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < told_.size(); ++i) {
    const std::uint32_t rank = told_[i].peer;
    const place* const theirs = of_.place_at(peers_, rank);
    if (!told_[i].result.has_value() || peers_.is_due(rank) || theirs == nullptr) continue;
    // This rank reads the other rank's count of steps by RDMA, so only the other rank's device has
    // to respond.
    const auto into =
        of_.memory_->scatter(of_.layout_.at(signal_word::answer_of, rank), sizeof(std::uint64_t));
    const auto from =
        theirs->slice(of_.layout_.at(signal_word::joined_with, of_.rank_), sizeof(std::uint64_t));
    if (!into.has_value() || !from.has_value()) continue;
    // If the read is queued behind other requests, a late answer does not prove that the other
    // rank's device has failed.
    channel_core& core = peers_[rank].core();
    if (peers_[rank].is_connected()) core.collect();
    of_.other(rank).is_behind_work = core.sends().outstanding() != 0;
    kept_pending& asked = of_.unwaited_.get()[i];
    asked = post_unwaited(
        peers_[rank],
        read_operation{.elements = into.assume_value(), .remote = from.assume_value()},
        of_.memory_->keep());
    if (asked.has_request())
      ++open_;
    else
      has_all_answers_ = false;
  }
}

bool signals::blame::has_answers() noexcept {
  const bool is_late = std::chrono::steady_clock::now() >= limits_.answers_until(begun_at_);
  for (std::size_t i = 0; open_ != 0 && i < told_.size(); ++i) {
    kept_pending& asked = of_.unwaited_.get()[i];
    if (!asked.has_request()) continue;
    const auto answered = asked.poll();
    if (!answered && !is_late) continue;
    if (answered)
      told_[i].result = check_answer(told_[i].peer, *answered);
    else if (!of_.other(told_[i].peer).is_behind_work)
      told_[i].result = missing(failed_.cause,
                                "no answer from that rank's device in time: check that rank's "
                                "process and device, and the network to it");
    else
      has_all_answers_ = false;
    asked = kept_pending();
    --open_;
  }
  if (open_ == 0) return true;
  peers_.serve();
  return false;
}

transport_result<completed_work> signals::blame::check_answer(
    std::uint32_t rank, const transport_result<completed_work>& answered) const noexcept {
  if (!answered.has_value()) return answered;
  const std::uint64_t answer = look(of_.data() + of_.layout_.at(signal_word::answer_of, rank));
  const std::uint64_t joined = of_.other(rank).counts.joined;
  // A rank that has not arrived counts as missing only after the limit.
  if (is_over_ && answer >> 16 < joined)
    return missing(failed_.cause, "that rank has not reached this step");
  if (answer >> 16 == joined && answer != (joined << 16 | tag_)) return other_step();
  return answered;
}

std::optional<error> signals::blame::trouble_with(std::uint32_t rank) const noexcept {
  if (rank == failed_.with && failed_.how != certainty::waited_for) return failed_.cause;
  if (rank >= peers_.size()) return not_of_the_world();
  if (!peers_.is_due(rank)) {
    const transport_result<completed_work> state = peers_.state_of(rank);
    if (!state.has_value()) return static_cast<error>(state.assume_error());
    return std::nullopt;
  }
  if (failed_.reached)
    for (const peer_result& each : *failed_.reached)
      if (each.peer == rank && !each.result.has_value())
        return static_cast<error>(each.result.assume_error());
  return std::nullopt;
}

void signals::blame::explain() noexcept {
  for (peer_result& each : told_) {
    if (each.result.has_value() || !is_lost(each.peer)) continue;
    const std::optional<farewell> why = of_.farewell_of(each.peer, ranks_);
    if (!why || why->culprit == each.peer) continue;
    each.result = no_failure();
    peer_result& culprit = result_of(why->culprit);
    if (culprit.result.has_value()) culprit.result = told_by_others(why->kind);
    if (failed_.with == each.peer) failed_.with = culprit.peer;
  }
}

bool signals::blame::guess() noexcept {
  const auto why = of_.farewell_of(*failed_.with, ranks_);
  const auto culprit =
      std::ranges::find(told_, why ? why->culprit : *failed_.with, &peer_result::peer);
  if (culprit == told_.end()) {
    own_cause_ = failed_.cause;
    return true;
  }
  if (!why) {
    culprit->result = failed_.cause;
    guessed_ = culprit->peer;
    return true;
  }
  culprit->result = told_by(*failed_.with, why->culprit, why->kind, why->is_lost);
  if (why->has_refused) {
    failed_.with = why->culprit;
    failed_.how = certainty::refused;
  }
  return false;
}

farewell signals::blame::reason() const noexcept {
  const auto sureness = [&](const peer_result& each) noexcept -> std::optional<certainty> {
    if (each.result.has_value()) return std::nullopt;
    if (is_lost(each.peer)) return certainty::lost;
    return each.peer == failed_.with ? std::max(failed_.how, certainty::known) : certainty::known;
  };
  const peer_result& first = *std::ranges::max_element(told_, {}, sureness);
  return {.culprit = first.peer,
          .kind = static_cast<error>(first.result.assume_error()).kind(),
          .is_lost = sureness(first) == certainty::lost,
          .has_refused = sureness(first) == certainty::refused};
}

group_results signals::blame::results() && noexcept {
  if (own_cause_) return *own_cause_;
  bool has_added = false;
  for (peer_result& each : told_) {
    if (!each.result.has_value() || !is_lost(each.peer) || of_.farewell_of(each.peer, ranks_))
      continue;
    each.result = peers_.state_of(each.peer);
    has_added = true;
  }
  if (has_added && guessed_ && !is_lost(*guessed_)) result_of(*guessed_).result = no_failure();
  return {std::move(all_), static_cast<std::uint32_t>(told_.size())};
}

}  // namespace verbspp::detail
