// SPDX-License-Identifier: Apache-2.0
#include "ranks/signals.hpp"

#include <verbspp/work/work_completion.hpp>

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

namespace verbspp::detail {

namespace {

constexpr const char* stepping = "collective step of a world";

/// How long ranks that have not come may take to answer that they are there at all.
constexpr auto time_for_answers = std::chrono::milliseconds(200);
/// A rank that waits for a word that another writes has no event to sleep for.
constexpr auto nap = std::chrono::microseconds(50);
constexpr unsigned rounds_before_yield = 64;

// Both compilers know this spelling.
#define VERBSPP_RANKS_NOT_WATCHED __attribute__((no_sanitize("thread")))

// What the device writes and reads by itself: for ThreadSanitizer, softverbs is a thread that knows
// no locks of ours.

[[gnu::noinline]] VERBSPP_RANKS_NOT_WATCHED std::uint64_t look(const std::byte* at) noexcept {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
}
[[gnu::noinline]] VERBSPP_RANKS_NOT_WATCHED void show(std::byte* at, std::uint64_t value) noexcept {
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(at), value, __ATOMIC_RELEASE);
}
[[gnu::noinline]] VERBSPP_RANKS_NOT_WATCHED void take(std::byte* to, const std::byte* from,
                                                      std::size_t size) noexcept {
  for (std::size_t i = 0; i < size; ++i) to[i] = *static_cast<const volatile std::byte*>(from + i);
}

}  // namespace

result<void> signals::open(const protection_domain& domain, std::uint32_t rank, std::uint32_t size,
                           wait_mode waiting) noexcept {
  rank_ = rank;
  size_ = size;
  waiting_ = waiting;
  VERBSPP_TRY(made, registered_buffer<rights>::allocate(domain, value_of(size + 1, 0)));
  memory_.emplace(std::move(made));
  counts_ = owned<counts[]>(new (std::nothrow) counts[size]);
  theirs_ = owned<std::optional<place>[]>(new (std::nothrow) std::optional<place>[size]);
  everybody_ = owned<std::uint32_t[]>(new (std::nothrow) std::uint32_t[size]);
  if (!counts_ || !theirs_ || !everybody_) return error::from_errno(ENOMEM, "join a world");
  for (std::uint32_t each = 0; each < size; ++each) everybody_.get()[each] = each;
  return success();
}

std::optional<error> signals::objection(const peer_list& ranks) noexcept {
  std::optional<error> found;
  const auto check = [&](std::uint32_t rank) -> std::optional<error> {
    if (rank >= size_)
      return error::above_limit(stepping, "rank", rank, size_ - 1,
                                "the list has a rank that the world does not have");
    if (std::exchange(counts_.get()[rank].is_named, true))
      return error::out_of_range(stepping, "rank", rank, "the list has this rank twice");
    return std::nullopt;
  };
  for (const std::uint32_t rank : ranks)
    if (const auto objects = check(rank); objects && !found) found = objects;
  if (!found && !counts_.get()[rank_].is_named)
    found = error::out_of_range(stepping, "rank", rank_, "the list lacks the rank that calls");
  for (const std::uint32_t rank : ranks)
    if (rank < size_) counts_.get()[rank].is_named = false;
  return found;
}

void signals::join(const peer_list& ranks) noexcept {
  for (const std::uint32_t rank : ranks)
    show(memory_->data() + joined_with(rank), ++counts_.get()[rank].joined);
}

template <class Signal, class Await>
void signals::run(barrier_kind kind, const peer_list& ranks, Signal signal,
                  Await await) const noexcept {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  const std::uint32_t* const all = ranks.begin();
  const auto own = static_cast<std::uint32_t>(std::find(all, all + count, rank_) - all);
  if (kind == barrier_kind::by_size)
    kind = count <= 64 ? barrier_kind::dissemination : barrier_kind::binary_tree;
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

bool signals::wait_for(std::uint32_t rank, const wait_limit& limit) const noexcept {
  const std::byte* const at = memory_->data() + signal_from(rank);
  const std::uint64_t wanted = counts_.get()[rank].awaited;
  const wait_limit spins_until(waiting_.spins_for());
  for (unsigned round = 0;; ++round) {
    if (look(at) >= wanted) return true;
    if (round % rounds_before_yield != rounds_before_yield - 1) continue;
    // What came together with the limit was still in time.
    if (limit.has_passed()) return look(at) >= wanted;
    if (waiting_.sleeps() && spins_until.has_passed())
      std::this_thread::sleep_for(nap);
    else
      sched_yield();
  }
}

group_results signals::barrier(group& peers, const peer_list& ranks, barrier_kind kind,
                               const wait_limit& limit) noexcept {
  if (const auto objects = objection(ranks)) return *objects;
  join(ranks);
  std::optional<std::uint32_t> late;
  std::optional<std::uint32_t> unreachable;
  const auto done = peers.scope(
      [&](group_scope& scope) noexcept {
        // Also where it has failed already, all signals are counted, as the others do.
        run(
            kind, ranks,
            [&](std::uint32_t to) noexcept {
              const std::uint64_t number = ++counts_.get()[to].sent;
              if (late || unreachable) return;
              std::byte* const source = memory_->data() + signal_to(to);
              show(source, number);
              const auto posted = [&]() -> result<void> {
                VERBSPP_TRY(from, memory_->gather(signal_to(to), sizeof number));
                VERBSPP_TRY(into, theirs_.get()[to]->slice(signal_from(rank_), sizeof number));
                VERBSPP_TRYV(scope[to].post_write({.elements = from, .remote = into}));
                return success();
              }();
              if (!posted.has_value()) unreachable = to;
            },
            [&](std::uint32_t from) noexcept {
              ++counts_.get()[from].awaited;
              if (!late && !unreachable && !wait_for(from, limit)) late = from;
            });
      },
      limit);
  if (done.has_value() && !late && !unreachable) return {owned<peer_result[]>(), 0};
  if (late) return blame(peers, ranks, late, limit.failure(stepping, "this rank did not come"));
  return blame(peers, ranks, unreachable ? unreachable : done.error().peer(),
               unreachable ? limit.failure(stepping) : static_cast<error>(done.error()));
}

group_results signals::blame(group& peers, const peer_list& ranks,
                             std::optional<std::uint32_t> awaited, const error& cause) noexcept {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  owned<peer_result[]> all(new (std::nothrow) peer_result[count]);
  if (!all) return error::from_errno(ENOMEM, stepping);
  const completed_work nothing(number_of(work_operation::rdma_read), 0, 0, 0);
  // Each is asked how often it has come, by what needs nobody there.
  const auto ask = [&](std::uint32_t rank) -> result<read_operation> {
    VERBSPP_TRY(into, memory_->scatter(answer_of(rank), sizeof(std::uint64_t)));
    VERBSPP_TRY(from, theirs_.get()[rank]->slice(joined_with(rank_), sizeof(std::uint64_t)));
    return read_operation{.elements = into, .remote = from};
  };
  const group_results answers = peers.gather(ranks, ask, time_for_answers);
  if (answers.size() != count) return static_cast<error>(answers.error());
  bool is_any_missing = false;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t rank = answers[i].peer;
    peer_result& told = all.get()[i];
    told.peer = rank;
    const auto failed = peers[rank].failure();
    if (failed)
      told.result = failed->root();
    else if (!answers[i].result.has_value())
      told.result = answers[i].result.assume_error();
    else if (look(memory_->data() + answer_of(rank)) < counts_.get()[rank].joined)
      told.result = error(
          cause.kind() == error_kind::cancelled ? error_kind::cancelled : error_kind::timed_out,
          stepping, "this rank has not come");
    else
      told.result = nothing;
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

group_results signals::all_gather(group& peers, std::span<const std::byte> mine,
                                  std::span<std::byte> all, const wait_limit& limit) noexcept {
  const peer_list everybody = std::span<const std::uint32_t>(everybody_.get(), size_);
  join(everybody);
  std::ranges::copy(mine, memory_->data() + own_value());
  // The value, and behind it the signal, both to each.
  std::optional<std::uint32_t> unreachable;
  std::optional<std::uint32_t> late;
  const auto done = peers.scope(
      [&](group_scope& scope) noexcept {
        for (std::uint32_t i = 1; i < size_; ++i) {
          const std::uint32_t to = (rank_ + i) % size_;
          counts& with = counts_.get()[to];
          const std::uint64_t number = ++with.sent;
          show(memory_->data() + signal_to(to), number);
          const auto posted = [&]() -> result<void> {
            VERBSPP_TRY(value, memory_->gather(own_value(), mine.size()));
            VERBSPP_TRY(place,
                        theirs_.get()[to]->slice(value_of(rank_, with.gathered), mine.size()));
            VERBSPP_TRYV(scope[to].post_write({.elements = value, .remote = place}));
            VERBSPP_TRY(from, memory_->gather(signal_to(to), sizeof number));
            VERBSPP_TRY(into, theirs_.get()[to]->slice(signal_from(rank_), sizeof number));
            VERBSPP_TRYV(scope[to].post_write({.elements = from, .remote = into}));
            return success();
          }();
          if (!posted.has_value() && !unreachable) unreachable = to;
        }
        for (std::uint32_t i = 1; i < size_; ++i) {
          const std::uint32_t from = (rank_ + i) % size_;
          ++counts_.get()[from].awaited;
          if (!late && !unreachable && !wait_for(from, limit)) late = from;
        }
      },
      limit);
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    const std::uint64_t turn = counts_.get()[rank].gathered++;
    take(all.data() + rank * mine.size(),
         memory_->data() + (rank == rank_ ? own_value() : value_of(rank, turn)), mine.size());
  }
  if (done.has_value() && !late && !unreachable) return {owned<peer_result[]>(), 0};
  if (late) return blame(peers, everybody, late, limit.failure(stepping, "this rank did not come"));
  return blame(peers, everybody, unreachable ? unreachable : done.error().peer(),
               unreachable ? limit.failure(stepping) : static_cast<error>(done.error()));
}

}  // namespace verbspp::detail
