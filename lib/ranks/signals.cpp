// SPDX-License-Identifier: Apache-2.0
#include "ranks/barrier_run.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/core/detail/channel_core.hpp>
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

[[nodiscard]] std::uint16_t tag_of_barrier(barrier_kind kind, const peer_list& ranks) noexcept {
  std::uint64_t listed = ranks.size();
  for (const std::uint32_t rank : ranks) listed = mixed(listed, rank);
  return detail::tag_of({static_cast<std::uint64_t>(kind), listed});
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
  layout_ = signal_layout(size);
  waiting_ = waiting;
  VERBSPP_TRY(made, registered_buffer<rights>::allocate(domain, layout_.size()));
  VERBSPP_TRY(shared, std::move(made).share());
  memory_.emplace(std::move(shared));
  others_ = owned<other_rank[]>(new (std::nothrow) other_rank[size]);
  partners_ = owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[size]);
  everybody_ = owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[size]);
  unwaited_ = owned<kept_pending[]>(new (std::nothrow) kept_pending[size]);
  if (!others_ || !partners_ || !everybody_ || !unwaited_)
    return error::from_errno(ENOMEM, "join a world");
  for (std::uint32_t each = 0; each < size; ++each) everybody_.get()[each] = each;
  return success();
}

std::optional<error> signals::objection() const noexcept {
  if (!is_in_step_) return std::nullopt;
  return error(error_kind::busy, collective_step,
               "a step of this world is still in progress: finish it first");
}

std::optional<error> signals::objection(const peer_list& ranks) noexcept {
  std::optional<error> found = objection();
  if (found) return found;
  const auto check = [&](std::uint32_t rank) -> std::optional<error> {
    if (rank >= size_)
      return error::above_limit(collective_step, "rank", rank, size_ - 1,
                                "the list of ranks contains a rank that the world does not have");
    if (std::exchange(other(rank).is_named, true))
      return error_in_words_of(error_kind::invalid_input, collective_step,
                               "the list of ranks contains rank %u twice: name each rank once",
                               rank);
    return std::nullopt;
  };
  for (const std::uint32_t rank : ranks)
    if (const auto objects = check(rank); objects && !found) found = objects;
  if (!found && !other(rank_).is_named)
    found = error_in_words_of(error_kind::invalid_input, collective_step,
                              "the list of ranks lacks rank %u, the calling rank: add it", rank_);
  for (const std::uint32_t rank : ranks)
    if (rank < size_) other(rank).is_named = false;
  return found;
}

void signals::join(const peer_list& ranks, std::uint16_t tag) noexcept {
  for (const std::uint32_t rank : ranks)
    show(data() + layout_.at(signal_word::joined_with, rank),
         ++other(rank).counts.joined << 16 | tag);
}

void signals::agree(std::uint32_t rank, const signal_counts::encoded& theirs) noexcept {
  signal_counts& with = other(rank).counts;
  with.agree(theirs, all_gathers_);
  show(data() + layout_.at(signal_word::taken_by, rank), with.given);
}

group_results signals::barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                               const wait_limit& limit,
                               const std::optional<error>& left_out) noexcept {
  if (const auto objects = objection(ranks)) return *objects;
  barrier_run now(*this, peers, ranks, kind, limit, blocks::yes, left_out);
  return now.run();
}

signals::barrier_run::barrier_run(signals& of, group& peers, const peer_list& ranks,
                                  barrier_kind kind, const wait_limit& limit, blocks may_block,
                                  const std::optional<error>& left_out) noexcept
    : step_(of, peers, ranks, tag_of_barrier(kind_for(kind, ranks.size()), ranks), limit, may_block,
            left_out),
      acts_(kind_for(kind, ranks.size()), ranks, of.rank_) {
  barrier_acts all = acts_;
  for (auto next = all.next(); next; next = all.next()) step_.note(next->with);
  act_ = acts_.next();
}

bool signals::barrier_run::has_acted(bool checks) noexcept {
  if (!step_.begin(checks)) return false;
  // All signals are counted, even if the step has already failed, because the other ranks count
  // them as well.
  for (; act_; act_ = acts_.next()) {
    const bool is_done = act_->signals ? step_.signal(act_->with, checks)  //
                                       : step_.await(act_->with, checks);
    if (!is_done) return false;
  }
  return true;
}

group_results signals::barrier_run::run() noexcept {
  step_.drive([this](bool checks) noexcept { return has_acted(checks); });
  step_.finish();
  return std::move(step_).results();
}

void signals::barrier_run::abort() noexcept {
  step_.abort();
  // A failed step does not wait, so this loop only counts the signals.
  while (!has_acted(true)) {
  }
  step_.finish();
}

signals::ends signals::ends_of(const channel& of) noexcept {
  const channel_core& core = of.core();
  return {core.connection().local().owner, core.connection().peer_owner()};
}

const signals::place* signals::place_at(const group& peers, std::uint32_t rank) const noexcept {
  const std::optional<place>& known = other(rank).memory;
  // The program may have moved the group out of the world, which leaves an empty group.
  return known && rank < peers.size() && ends_of(peers[rank]) == other(rank).connected ? &*known
                                                                                       : nullptr;
}

void signals::set_channel_to(std::uint32_t rank, const channel& connected) noexcept {
  other(rank).connected = ends_of(connected);
}

void signals::tell_connected(group& peers, std::uint32_t rank, std::uint64_t mark) noexcept {
  if (const place* const theirs = place_at(peers, rank); theirs != nullptr)
    static_cast<void>(write_unwaited(peers[rank], *theirs,
                                     layout_.at(signal_word::connected_to, rank),
                                     layout_.at(signal_word::connected_from, rank_), mark));
}

std::optional<farewell> signals::farewell_of(std::uint32_t rank,
                                             const peer_list& ranks) const noexcept {
  const std::uint64_t joined = other(rank).counts.joined;
  std::optional<farewell> why =
      farewell::decode(look(data() + layout_.farewell_from(rank, joined)), joined);
  if (why && why->culprit == rank_) {
    // The other rank blames this rank, which has not failed. If the reason is a lost connection to
    // this rank, this rank blames the other rank instead.
    if (!why->is_lost) return std::nullopt;
    why->culprit = rank;
  }
  if (why && std::ranges::find(ranks, why->culprit) == ranks.end()) return std::nullopt;
  return why;
}

bool signals::has_gone_on(std::uint32_t rank) const noexcept {
  const std::uint64_t joined = other(rank).counts.joined;
  const auto is_later = [&](std::uint64_t count) noexcept {
    return farewell::is_later(look(data() + layout_.farewell_from(rank, count)), joined);
  };
  return is_later(joined) || is_later(joined + 1);
}

kept_pending signals::write_unwaited(const channel& with, const place& theirs, std::size_t from,
                                     std::size_t into, std::uint64_t value) noexcept {
  show(data() + from, value);
  const auto elements = memory_->gather(from, sizeof value);
  const auto remote = theirs.slice(into, sizeof value);
  if (!elements.has_value() || !remote.has_value()) return {};
  return post_unwaited(
      with, write_operation{.elements = elements.assume_value(), .remote = remote.assume_value()},
      memory_->keep());
}

std::size_t signals::post_farewells(group& peers, const peer_list& ranks,
                                    const farewell& why) noexcept {
  std::size_t open = 0;
  for (const std::uint32_t rank : ranks) {
    const place* const theirs = place_at(peers, rank);
    // A rank that cannot be notified detects the failure itself. A rank that has aborted this step
    // needs no notification. A culprit would ignore a farewell that blames it, unless the farewell
    // reports a lost connection (see `farewell_of`).
    if (rank == rank_ || (rank == why.culprit && !why.is_lost) || peers.is_due(rank) ||
        theirs == nullptr || farewell_of(rank, ranks))
      continue;
    const std::uint64_t joined = other(rank).counts.joined;
    unwaited_.get()[open] =
        write_unwaited(peers[rank], *theirs, layout_.farewell_to(rank, joined),
                       layout_.farewell_from(rank_, joined), why.encode(joined));
    if (unwaited_.get()[open].has_request()) ++open;
  }
  return open;
}

}  // namespace verbspp::detail
