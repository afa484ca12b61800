// SPDX-License-Identifier: Apache-2.0
#include "ranks/barrier_pattern.hpp"
#include "ranks/step.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/channel/detail/channel_access.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/pending.hpp>
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

std::optional<error> signals::objection(const peer_list& ranks) noexcept {
  std::optional<error> found;
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

void signals::leave_out_barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                                const error& cause, const wait_limit& limit) noexcept {
  if (objection(ranks)) return;
  for (const std::uint32_t rank : ranks) ++other(rank).counts.joined;
  run_barrier(
      kind_for(kind, ranks.size()), ranks, rank_,
      [&](std::uint32_t to) noexcept { ++other(to).counts.signaled; },
      [&](std::uint32_t from) noexcept { ++other(from).counts.awaited; });
  tell_own(peers, ranks, cause.kind(), step_limits(limit));
}

group_results signals::barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                               const wait_limit& limit) noexcept {
  if (const auto objects = objection(ranks)) return *objects;
  kind = kind_for(kind, ranks.size());
  std::uint64_t listed = ranks.size();
  for (const std::uint32_t rank : ranks) listed = mixed(listed, rank);
  const std::uint16_t tag = tag_of({static_cast<std::uint64_t>(kind), listed});
  // All signals are counted, even if the step has already failed, because the other ranks count
  // them as well.
  return run_step(peers, ranks, tag, limit, [&](step& now) noexcept {
    const auto note = [&](std::uint32_t rank) noexcept { now.note(rank); };
    run_barrier(kind, ranks, rank_, note, note);
    now.begin();
    run_barrier(
        kind, ranks, rank_, [&](std::uint32_t to) noexcept { now.signal(to); },
        [&](std::uint32_t from) noexcept { now.await(from); });
  });
}

signals::ends signals::ends_of(const channel& of) noexcept {
  const channel_core& core = channel_access::core_of(of);
  return {core.connection().local().owner, core.connection().peer_owner()};
}

const signals::place* signals::place_at(const group& peers, std::uint32_t rank) const noexcept {
  const std::optional<place>& known = other(rank).memory;
  return known && ends_of(peers[rank]) == other(rank).connected ? &*known : nullptr;
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
    // The other rank blames this rank, which has not failed. But if the connection between the two
    // is broken, this rank has lost the other rank as well.
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

void signals::tell(group& peers, const peer_list& ranks, const farewell& why,
                   const step_limits& limits) noexcept {
  std::size_t open = 0;
  for (const std::uint32_t rank : ranks) {
    const place* const theirs = place_at(peers, rank);
    // A rank that cannot be notified detects the failure itself. A rank that has aborted this step
    // needs no notification.
    if (rank == rank_ || (rank == why.culprit && !why.is_lost) || peers.is_due(rank) ||
        theirs == nullptr || farewell_of(rank, ranks))
      continue;
    const std::uint64_t joined = other(rank).counts.joined;
    unwaited_.get()[open] =
        write_unwaited(peers[rank], *theirs, layout_.farewell_to(rank, joined),
                       layout_.farewell_from(rank_, joined), why.encode(joined));
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

}  // namespace verbspp::detail
