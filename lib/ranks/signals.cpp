// SPDX-License-Identifier: Apache-2.0
#include "ranks/step.hpp"
#include <verbspp/work/work_completion.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

namespace verbspp::detail {

namespace {

/// How long a rank may take to answer how far it has come, which its device does; then it is gone.
constexpr auto time_for_answers = std::chrono::seconds(1);

[[nodiscard]] barrier_kind kind_for(barrier_kind kind, std::size_t ranks) noexcept {
  if (kind != barrier_kind::by_size) return kind;
  return ranks <= 64 ? barrier_kind::dissemination : barrier_kind::binary_tree;
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
  VERBSPP_TRY(made, registered_buffer<rights>::allocate(domain, own_value(2)));
  memory_.emplace(std::move(made));
  counts_ = owned<counts[]>(new (std::nothrow) counts[size]);
  is_named_ = owned<bool[]>(new (std::nothrow) bool[size]());
  partners_ = owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[size]);
  is_expected_ = owned<bool[]>(new (std::nothrow) bool[size]());
  theirs_ = owned<std::optional<place>[]>(new (std::nothrow) std::optional<place>[size]);
  everybody_ = owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[size]);
  if (!counts_ || !is_named_ || !partners_ || !is_expected_ || !theirs_ || !everybody_)
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

void signals::leave_out_barrier(const peer_list& ranks, barrier_kind kind) noexcept {
  if (objection(ranks)) return;
  for (const std::uint32_t rank : ranks) ++counts_.get()[rank].joined;
  run(
      kind_for(kind, ranks.size()), ranks,
      [&](std::uint32_t to) noexcept { ++counts_.get()[to].signaled; },
      [&](std::uint32_t from) noexcept { ++counts_.get()[from].awaited; });
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

group_results signals::blame(group& peers, const peer_list& ranks, std::uint16_t tag,
                             std::optional<std::uint32_t> awaited, const error& cause,
                             bool is_known, const std::optional<group_results>& reached) noexcept {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  owned<peer_result[]> all(new (std::nothrow) peer_result[count]);
  if (!all) return error::from_errno(ENOMEM, collective_step);
  const completed_work nothing(number_of(work_operation::rdma_read), 0, 0, 0);
  // Each is asked how often it has come, by what needs nobody there; those that are still to be
  // connected can't be.
  const auto ask = [&](std::uint32_t rank) -> result<read_operation> {
    VERBSPP_TRY(into, memory_->scatter(at(word::answer_of, rank), sizeof(std::uint64_t)));
    VERBSPP_TRY(from,
                theirs_.get()[rank]->slice(at(word::joined_with, rank_), sizeof(std::uint64_t)));
    return read_operation{.elements = into, .remote = from};
  };
  std::uint32_t asked = 0;
  for (const std::uint32_t rank : ranks)
    if (!peers.is_due(rank)) partners_.get()[asked++] = rank;
  const group_results answers =
      peers.gather(std::span<const std::uint32_t>(partners_.get(), asked), ask, time_for_answers);
  if (answers.size() != asked) return static_cast<error>(answers.error());
  bool is_any_missing = false;
  const peer_result* answer_of = answers.begin();
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t rank = ranks.begin()[i];
    peer_result& told = all.get()[i];
    told = {rank, nothing};
    if (peers.is_due(rank)) {
      if (reached)
        for (const peer_result& each : *reached)
          if (each.peer == rank) told = each;
      is_any_missing = is_any_missing || !told.result.has_value();
      continue;
    }
    const transport_result<completed_work>& answered = answer_of++->result;
    const auto failed = peers[rank].failure();
    if (failed)
      told.result = failed->root();
    else if (!answered.has_value())
      told.result = answered.assume_error();
    if (told.result.has_value()) {
      const std::uint64_t answer = look(data() + at(word::answer_of, rank));
      const std::uint64_t joined = counts_.get()[rank].joined;
      if (is_known && rank == *awaited)
        told.result = cause;
      else if (answer >> 16 < joined)
        told.result = error(
            cause.kind() == error_kind::cancelled ? error_kind::cancelled : error_kind::timed_out,
            collective_step, "this rank has not come");
      else if (answer >> 16 == joined && answer != (joined << 16 | tag))
        told.result = other_step();
    }
    is_any_missing = is_any_missing || !told.result.has_value();
  }
  // All have come meanwhile, too late for this one.
  if (!is_any_missing)
    for (std::uint32_t i = 0; i < count; ++i)
      if (!awaited || all.get()[i].peer == *awaited) {
        all.get()[i].result = cause;
        break;
      }
  return {std::move(all), count};
}

}  // namespace verbspp::detail
