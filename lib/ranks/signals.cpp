// SPDX-License-Identifier: Apache-2.0
#include "ranks/step.hpp"
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/group/detail/channel_access.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/work/work_completion.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace verbspp::detail {

namespace {

constexpr auto time_between_polls = std::chrono::microseconds(50);

// A farewell is the low bits of the count, whether a rank has been lost, whether it has refused,
// the kind of error, and the culprit.
constexpr unsigned kind_at = 16;
constexpr std::uint64_t kind_bits = 0x3f;
constexpr std::uint64_t refused_bit = 1U << 22U;
constexpr std::uint64_t lost_bit = 1U << 23U;
constexpr unsigned count_at = 24;

/// Posts what nobody has to wait for, unless the queue is full. \returns a handle without a request
/// if it could not be posted
template <class Operation>
[[nodiscard]] kept_pending post_unwaited(const channel& with, const Operation& operation,
                                         const kept_memory& memory) noexcept {
  channel_core& core = channel_access::core_of(with);
  request made;
  const auto posted = core.post(operation, made, {}, memory);
  return posted.has_value() ? kept_pending(&core, made) : kept_pending();
}

[[nodiscard]] error missing(const error& cause, const char* how) noexcept {
  return {cause.kind() == error_kind::cancelled ? error_kind::cancelled : error_kind::timed_out,
          collective_step, how};
}

[[nodiscard]] barrier_kind kind_for(barrier_kind kind, std::size_t ranks) noexcept {
  if (kind != barrier_kind::by_size) return kind;
  return ranks <= 64 ? barrier_kind::dissemination : barrier_kind::binary_tree;
}

/// What came of a rank that is not to blame.
[[nodiscard]] completed_work no_failure() noexcept {
  return {number_of(work_operation::rdma_read), 0, 0, 0};
}

/// Whether there is no connection any more.
[[nodiscard]] bool is_lost(const group& peers, std::uint32_t rank) noexcept {
  return !peers.is_due(rank) && !peers[rank].is_connected();
}

}  // namespace

group_results results_of(const group_error& failed) noexcept {
  if (!failed.peer()) return static_cast<error>(failed);
  owned<peer_result[]> one(new (std::nothrow) peer_result[1]);
  if (!one) return static_cast<error>(failed);
  one.get()[0].peer = *failed.peer();
  one.get()[0].result = failed.cause();
  return {std::move(one), 1};
}

result<void> signals::open(const protection_domain& domain, std::uint32_t rank, std::uint32_t size,
                           wait_mode waiting) noexcept {
  rank_ = rank;
  size_ = size;
  waiting_ = waiting;
  VERBSPP_TRY(made, registered_buffer<rights>::allocate(domain, end_of_memory()));
  VERBSPP_TRY(shared, std::move(made).share());
  memory_.emplace(std::move(shared));
  counts_ = owned<counts[]>(new (std::nothrow) counts[size]);
  is_named_ = owned<bool[]>(new (std::nothrow) bool[size]());
  partners_ = owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[size]);
  is_expected_ = owned<bool[]>(new (std::nothrow) bool[size]());
  theirs_ = owned<std::optional<place>[]>(new (std::nothrow) std::optional<place>[size]);
  ends_ = owned<ends[]>(new (std::nothrow) ends[size]);
  everybody_ = owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[size]);
  unwaited_ = owned<kept_pending[]>(new (std::nothrow) kept_pending[size]);
  is_behind_ = owned<bool[]>(new (std::nothrow) bool[size]());
  if (!counts_ || !is_named_ || !partners_ || !is_expected_ || !theirs_ || !ends_ || !everybody_ ||
      !unwaited_ || !is_behind_)
    return error::from_errno(ENOMEM, "join a world");
  for (std::uint32_t each = 0; each < size; ++each) everybody_.get()[each] = each;
  return success();
}

std::optional<error> signals::objection(const peer_list& ranks) noexcept {
  std::optional<error> found;
  const auto check = [&](std::uint32_t rank) -> std::optional<error> {
    if (rank >= size_)
      return error::above_limit(collective_step, "rank", rank, size_ - 1,
                                "the list has a rank that the world does not have");
    if (std::exchange(is_named_.get()[rank], true))
      return error::out_of_range(collective_step, "rank", rank, "the list has this rank twice");
    return std::nullopt;
  };
  for (const std::uint32_t rank : ranks)
    if (const auto objects = check(rank); objects && !found) found = objects;
  if (!found && !is_named_.get()[rank_])
    found =
        error::out_of_range(collective_step, "rank", rank_, "the list lacks the rank that calls");
  for (const std::uint32_t rank : ranks)
    if (rank < size_) is_named_.get()[rank] = false;
  return found;
}

void signals::join(const peer_list& ranks, std::uint16_t tag) noexcept {
  for (const std::uint32_t rank : ranks)
    show(data() + at(word::joined_with, rank), ++counts_.get()[rank].joined << 16 | tag);
}

signals::encoded_counts signals::counts_with(std::uint32_t rank) const noexcept {
  const counts& with = counts_.get()[rank];
  return {with.signaled, with.awaited, with.joined, with.given, with.expected, all_gathers_};
}

void signals::agree(std::uint32_t rank, const encoded_counts& theirs) noexcept {
  counts& with = counts_.get()[rank];
  with.signaled = std::max(with.signaled, theirs[1]);
  with.awaited = std::max(with.awaited, theirs[0]);
  with.joined = std::max(with.joined, theirs[2]);
  with.given = std::max(with.given, theirs[4]);
  with.expected = std::max(with.expected, theirs[3]);
  with.released = with.expected;
  all_gathers_ = std::max(all_gathers_, theirs[5]);
  show(data() + at(word::taken_by, rank), with.given);
}

template <class Signal, class Await>
void signals::run(barrier_kind kind, const peer_list& ranks, Signal signal,
                  Await await) const noexcept {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  const std::uint32_t* const all = ranks.begin();
  const auto own = static_cast<std::uint32_t>(std::find(all, all + count, rank_) - all);
  if (kind == barrier_kind::dissemination) {
    for (std::uint64_t distance = 1; distance < count; distance *= 2) {
      signal(all[(own + distance) % count]);
      await(all[(own + count - distance) % count]);
    }
    return;
  }
  // The centre is a tree of one level.
  const bool is_star = kind == barrier_kind::centralized;
  const std::uint64_t first = is_star ? (own == 0 ? 1 : count) : 2 * std::uint64_t{own} + 1;
  const std::uint64_t end = std::min<std::uint64_t>(is_star ? count : first + 2, count);
  for (std::uint64_t child = first; child < end; ++child) await(all[child]);
  if (own != 0) {
    const std::uint32_t parent = all[is_star ? 0 : (own - 1) / 2];
    signal(parent);
    await(parent);
  }
  for (std::uint64_t child = first; child < end; ++child) signal(all[child]);
}

void signals::leave_out_barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                                const error& cause, const wait_limit& limit) noexcept {
  if (objection(ranks)) return;
  for (const std::uint32_t rank : ranks) ++counts_.get()[rank].joined;
  run(
      kind_for(kind, ranks.size()), ranks,
      [&](std::uint32_t to) noexcept { ++counts_.get()[to].signaled; },
      [&](std::uint32_t from) noexcept { ++counts_.get()[from].awaited; });
  tell_own(peers, ranks, cause.kind(), step_limits(limit));
}

group_results signals::barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                               const wait_limit& limit) noexcept {
  if (const auto objects = objection(ranks)) return *objects;
  kind = kind_for(kind, ranks.size());
  std::uint64_t listed = ranks.size();
  for (const std::uint32_t rank : ranks) listed = mixed(listed, rank);
  const std::uint16_t tag = tag_of({static_cast<std::uint64_t>(kind), listed});
  // Also where it has failed already, all signals are counted, as the others do.
  return run_step(peers, ranks, tag, limit, [&](step& now) noexcept {
    const auto note = [&](std::uint32_t rank) noexcept { now.note(rank); };
    run(kind, ranks, note, note);
    now.begin();
    run(
        kind, ranks, [&](std::uint32_t to) noexcept { now.signal(to); },
        [&](std::uint32_t from) noexcept { now.await(from); });
  });
}

signals::ends signals::ends_of(const channel& of) noexcept {
  const channel_core& core = channel_access::core_of(of);
  return {core.connection().local().owner, core.connection().peer_owner()};
}

const signals::place* signals::place_at(const group& peers, std::uint32_t rank) const noexcept {
  const std::optional<place>& known = theirs_.get()[rank];
  return known && ends_of(peers[rank]) == ends_.get()[rank] ? &*known : nullptr;
}

void signals::set_channel_to(std::uint32_t rank, const channel& connected) noexcept {
  ends_.get()[rank] = ends_of(connected);
}

std::optional<signals::farewell> signals::farewell_of(std::uint32_t rank,
                                                      const peer_list& ranks) const noexcept {
  const std::uint64_t joined = counts_.get()[rank].joined;
  const std::uint64_t told = look(data() + farewell_from(rank, joined));
  if (told == 0 || (told ^ joined << count_at) >> count_at != 0) return std::nullopt;
  const std::uint64_t kind = (told >> kind_at) & kind_bits;
  farewell why{.culprit = static_cast<std::uint32_t>(told & 0xffffU),
               .kind = static_cast<error_kind>(kind),
               .is_lost = (told & lost_bit) != 0,
               .has_refused = (told & refused_bit) != 0};
  if (why.culprit == rank_) {
    // It is here; but who has lost it is lost to it, too.
    if (!why.is_lost) return std::nullopt;
    why.culprit = rank;
  }
  if (kind > static_cast<std::uint64_t>(error_kind::driver) ||
      std::ranges::find(ranks, why.culprit) == ranks.end())
    return std::nullopt;
  return why;
}

bool signals::has_gone_on(std::uint32_t rank) const noexcept {
  constexpr std::uint64_t half = std::uint64_t{1} << (63 - count_at);
  const std::uint64_t joined = counts_.get()[rank].joined;
  for (const std::uint64_t count : {joined, joined + 1}) {
    const std::uint64_t told = look(data() + farewell_from(rank, count));
    const std::uint64_t ahead = (told - (joined << count_at)) >> count_at;
    if (told != 0 && ahead != 0 && ahead < half) return true;
  }
  return false;
}

bool signals::ask(group& peers, std::uint16_t tag, const failed_step& failed,
                  const step_limits& limits, std::span<peer_result> told) noexcept {
  const bool is_over = limits.waiting().has_passed();
  const wait_limit until = limits.answers_until(std::chrono::steady_clock::now());
  kept_pending* const asked = unwaited_.get();
  bool has_all = true;
  std::size_t open = 0;
  for (std::size_t i = 0; i < told.size(); ++i) {
    const std::uint32_t rank = told[i].peer;
    const place* const theirs = place_at(peers, rank);
    if (!told[i].result.has_value() || peers.is_due(rank) || theirs == nullptr) continue;
    // By what needs nobody there.
    const auto into = memory_->scatter(at(word::answer_of, rank), sizeof(std::uint64_t));
    const auto from = theirs->slice(at(word::joined_with, rank_), sizeof(std::uint64_t));
    if (!into.has_value() || !from.has_value()) continue;
    // Behind other work, an answer may have to wait for what nobody knows.
    peers[rank].poll();
    is_behind_.get()[i] = channel_access::core_of(peers[rank]).sends().outstanding() != 0;
    asked[i] = post_unwaited(
        peers[rank], read_operation{.elements = into.assume_value(), .remote = from.assume_value()},
        memory_->keep());
    if (asked[i].has_request())
      ++open;
    else
      has_all = false;
  }
  for (bool is_late = false; open != 0; is_late = until.has_passed()) {
    for (std::size_t i = 0; i < told.size(); ++i) {
      if (!asked[i].has_request()) continue;
      const auto answered = asked[i].poll();
      if (!answered && !is_late) continue;
      if (answered)
        told[i].result = check_answer(told[i].peer, tag, *answered, is_over, failed.cause);
      else if (!is_behind_.get()[i])
        told[i].result = missing(failed.cause, "this rank's device is silent");
      else
        has_all = false;
      asked[i] = kept_pending();
      --open;
    }
    if (open == 0) break;
    peers.serve();
    std::this_thread::sleep_for(time_between_polls);
  }
  return has_all;
}

transport_result<completed_work> signals::check_answer(
    std::uint32_t rank, std::uint16_t tag, const transport_result<completed_work>& answered,
    bool is_over, const error& cause) const noexcept {
  if (!answered.has_value()) return answered;
  const std::uint64_t answer = look(data() + at(word::answer_of, rank));
  const std::uint64_t joined = counts_.get()[rank].joined;
  // Before the limit, who has not come is not missing.
  if (is_over && answer >> 16 < joined) return missing(cause, "this rank has not come");
  if (answer >> 16 == joined && answer != (joined << 16 | tag)) return other_step();
  return answered;
}

std::optional<error> signals::trouble_with(group& peers, std::uint32_t rank,
                                           const failed_step& failed) const noexcept {
  if (rank == failed.with && failed.how != certainty::waited_for) return failed.cause;
  if (!peers.is_due(rank)) {
    const transport_result<completed_work> state = peers.state_of(rank);
    if (!state.has_value()) return static_cast<error>(state.assume_error());
    return std::nullopt;
  }
  if (failed.reached)
    for (const peer_result& each : *failed.reached)
      if (each.peer == rank && !each.result.has_value())
        return static_cast<error>(each.result.assume_error());
  return std::nullopt;
}

void signals::explain(const group& peers, const peer_list& ranks, std::span<peer_result> told,
                      failed_step& failed) const noexcept {
  for (peer_result& each : told) {
    if (each.result.has_value() || !is_lost(peers, each.peer)) continue;
    const std::optional<farewell> why = farewell_of(each.peer, ranks);
    if (!why || why->culprit == each.peer) continue;
    each.result = no_failure();
    peer_result& culprit = *std::ranges::find(told, why->culprit, &peer_result::peer);
    if (culprit.result.has_value()) culprit.result = told_by_others(why->kind);
    if (failed.with == each.peer) failed.with = culprit.peer;
  }
}

signals::farewell signals::reason_of(const group& peers, std::span<const peer_result> told,
                                     const failed_step& failed) noexcept {
  const auto sureness = [&](const peer_result& each) noexcept -> std::optional<certainty> {
    if (each.result.has_value()) return std::nullopt;
    if (is_lost(peers, each.peer)) return certainty::lost;
    return each.peer == failed.with ? std::max(failed.how, certainty::known) : certainty::known;
  };
  const peer_result& first = *std::ranges::max_element(told, {}, sureness);
  return {.culprit = first.peer,
          .kind = static_cast<error>(first.result.assume_error()).kind(),
          .is_lost = sureness(first) == certainty::lost,
          .has_refused = sureness(first) == certainty::refused};
}

void signals::tell(group& peers, const peer_list& ranks, const farewell& why,
                   const step_limits& limits) noexcept {
  const std::uint64_t reason = std::uint64_t{why.culprit} | (why.is_lost ? lost_bit : 0) |
                               (why.has_refused ? refused_bit : 0) |
                               static_cast<std::uint64_t>(why.kind) << kind_at;
  std::size_t open = 0;
  for (const std::uint32_t rank : ranks) {
    const place* const theirs = place_at(peers, rank);
    // Who can't be told finds out itself, and who has given this step up needs no news of it.
    if (rank == rank_ || (rank == why.culprit && !why.is_lost) || peers.is_due(rank) ||
        theirs == nullptr || farewell_of(rank, ranks))
      continue;
    const std::uint64_t joined = counts_.get()[rank].joined;
    const std::size_t from = farewell_to(rank, joined);
    show(data() + from, joined << count_at | reason);
    const auto elements = memory_->gather(from, sizeof(std::uint64_t));
    const auto into = theirs->slice(farewell_from(rank_, joined), sizeof(std::uint64_t));
    if (!elements.has_value() || !into.has_value()) continue;
    unwaited_.get()[open] = post_unwaited(
        peers[rank],
        write_operation{.elements = elements.assume_value(), .remote = into.assume_value()},
        memory_->keep());
    if (unwaited_.get()[open].has_request()) ++open;
  }
  const std::span<kept_pending> left(unwaited_.get(), open);
  const auto is_on_its_way = [](kept_pending& each) {
    if (each.has_request() && each.poll()) each = kept_pending();
    return each.has_request();
  };
  for (const wait_limit until = limits.news_until(std::chrono::steady_clock::now());
       std::ranges::count_if(left, is_on_its_way) != 0 && !until.has_passed();)
    std::this_thread::sleep_for(time_between_polls);
  for (kept_pending& each : left) each = kept_pending();
}

signals::verdict signals::blame(group& peers, const peer_list& ranks, std::uint16_t tag,
                                failed_step failed, const step_limits& limits) noexcept {
  if (!failed.with) {
    tell_own(peers, ranks, failed.cause.kind(), limits);
    return failed.cause;
  }
  if (is_lost(peers, *failed.with)) failed.how = certainty::lost;
  const auto count = static_cast<std::uint32_t>(ranks.size());
  owned<peer_result[]> all(new (std::nothrow) peer_result[count]);
  if (!all) {
    // Nobody can be asked. The one that this rank waited for is to blame only if it has told so.
    const error lacking = error::from_errno(ENOMEM, collective_step);
    if (failed.how != certainty::waited_for)
      tell(peers, ranks,
           {.culprit = *failed.with,
            .kind = failed.cause.kind(),
            .is_lost = failed.how == certainty::lost,
            .has_refused = failed.how == certainty::refused},
           limits);
    else if (const auto why = farewell_of(*failed.with, ranks))
      tell(peers, ranks, *why, limits);
    else
      tell_own(peers, ranks, lacking.kind(), limits);
    return lacking;
  }
  const std::span<peer_result> told(all.get(), count);
  for (std::uint32_t i = 0; i < count; ++i) {
    told[i] = {ranks.begin()[i], no_failure()};
    if (const auto trouble = trouble_with(peers, told[i].peer, failed)) told[i].result = *trouble;
  }
  const bool has_asked_all = (failed.how != certainty::lost || limits.waiting().has_passed()) &&
                             ask(peers, tag, failed, limits, told);
  // Who is told that it is lost itself, and finds a connection that broke, was lost by that.
  if (failed.is_itself_lost)
    for (const peer_result& each : told) {
      if (each.peer == *failed.with || each.result.has_value()) continue;
      std::ranges::find(told, *failed.with, &peer_result::peer)->result = no_failure();
      failed.with = each.peer;
      break;
    }
  explain(peers, ranks, told, failed);
  std::optional<std::uint32_t> guessed;
  if (std::ranges::all_of(told, [](const peer_result& each) { return each.result.has_value(); })) {
    // All whom this rank can ask have come. The one that it waited for has told for whom it waited,
    // or was too late, at least.
    const auto why = farewell_of(*failed.with, ranks);
    const auto culprit =
        std::ranges::find(told, why ? why->culprit : *failed.with, &peer_result::peer);
    if (culprit == told.end()) return failed.cause;
    culprit->result =
        why ? told_by(*failed.with, why->culprit, why->kind, why->is_lost) : failed.cause;
    if (why && why->has_refused) {
      failed.with = why->culprit;
      failed.how = certainty::refused;
    }
    if (!why) guessed = culprit->peer;
  }
  // It may be one of those that this rank could not ask, instead.
  if (!guessed || has_asked_all) tell(peers, ranks, reason_of(peers, told, failed), limits);
  return findings{std::move(all), guessed};
}

group_results signals::add_lost(const group& peers, const peer_list& ranks,
                                verdict found) const noexcept {
  if (!found.has_value()) return found.assume_error();
  auto [all, guessed] = std::move(found).assume_value();
  const auto count = static_cast<std::uint32_t>(ranks.size());
  const std::span<peer_result> told(all.get(), count);
  bool has_added = false;
  for (peer_result& each : told) {
    if (!each.result.has_value() || !is_lost(peers, each.peer) || farewell_of(each.peer, ranks))
      continue;
    each.result = peers.state_of(each.peer);
    has_added = true;
  }
  if (has_added && guessed && !is_lost(peers, *guessed))
    std::ranges::find(told, *guessed, &peer_result::peer)->result = no_failure();
  return {std::move(all), count};
}

}  // namespace verbspp::detail
