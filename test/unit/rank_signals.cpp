// SPDX-License-Identifier: Apache-2.0
/// \file
/// Steps between ranks: the parts that need no device. A rank that aborts a step writes its reason,
/// which is called a "farewell", to the memory of other ranks.

#include "../catch.hpp"

#include <ranks/barrier_pattern.hpp>
#include <ranks/farewell.hpp>
#include <ranks/signal_counts.hpp>
#include <ranks/signal_memory.hpp>
#include <ranks/values_of_ranks.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <new>
#include <numeric>
#include <system_error>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::detail;

TEST_CASE("the words and values in a rank's memory do not overlap") {
  constexpr std::uint32_t ranks = 5;
  const signal_layout layout(ranks);
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (unsigned which = 0; which < static_cast<unsigned>(signal_word::count); ++which)
      places.emplace_back(layout.at(static_cast<signal_word>(which), rank), sizeof(std::uint64_t));
    for (const std::uint64_t number : {6, 7})
      places.emplace_back(layout.value_from(rank, number), signal_layout::largest_value);
  }
  for (const std::uint64_t turn : {6, 7})
    places.emplace_back(layout.values_of_all(turn), ranks * signal_layout::largest_value);
  for (const std::uint32_t which : {0U, 1U})
    places.emplace_back(layout.own_value(which), signal_layout::largest_value);
  std::ranges::sort(places);
  std::size_t end = 0;
  for (const auto& [begin, size] : places) {
    CHECK(begin == end);
    end = begin + size;
  }
  CHECK(end == layout.size());
}

TEST_CASE("numbers and farewells of two consecutive steps have separate places") {
  const signal_layout layout(3);
  for (const std::uint64_t step : {1, 2, 9}) {
    CHECK(layout.number_from(1, step) != layout.number_from(1, step + 1));
    CHECK(layout.number_from(1, step) == layout.number_from(1, step + 2));
    CHECK(layout.farewell_from(1, step) != layout.farewell_from(1, step + 1));
    CHECK(layout.farewell_to(1, step) != layout.farewell_to(1, step + 1));
    CHECK(layout.value_from(1, step) == layout.value_from(1, step + 2));
  }
}

TEST_CASE("a farewell reports its reason only for its own step") {
  const std::uint64_t step = 0x123456789U;
  for (const farewell& each : {farewell{0, error_kind::timed_out, false, false},
                               farewell{0xfffe, error_kind::driver, true, false},
                               farewell{7, error_kind::resource_exhausted, false, true}}) {
    const auto read = farewell::decode(each.encode(step), step);
    REQUIRE(read);
    CHECK(read->culprit == each.culprit);
    CHECK(read->kind == each.kind);
    CHECK(read->is_lost == each.is_lost);
    CHECK(read->has_refused == each.has_refused);
    CHECK_FALSE(farewell::decode(each.encode(step), step + 1));
    CHECK_FALSE(farewell::decode(each.encode(step), step - 2));
    CHECK_FALSE(farewell::is_later(each.encode(step), step));
    CHECK_FALSE(farewell::is_later(each.encode(step), step + 2));
    CHECK(farewell::is_later(each.encode(step), step - 1));
  }
}

TEST_CASE("an invalid word is not read as a farewell") {
  CHECK_FALSE(farewell::decode(0, 0));
  CHECK_FALSE(farewell::decode(0, 1));
  CHECK_FALSE(farewell::is_later(0, 1));
  const std::uint64_t no_kind = static_cast<std::uint64_t>(error_kind::driver) + 1;
  CHECK_FALSE(farewell::decode(std::uint64_t{4} << 24U | no_kind << 16U | 1U, 4));
}

TEST_CASE("a farewell counts as later even if the low bits of the step's number have wrapped") {
  const std::uint64_t last = (std::uint64_t{1} << 40U) - 1;
  const farewell left{1, error_kind::timed_out, false, false};
  CHECK(farewell::is_later(left.encode(last + 1), last));
  CHECK_FALSE(farewell::is_later(left.encode(last), last + 1));
}

TEST_CASE("two ranks that reconnect continue from the higher of their counts") {
  signal_counts here{.signaled = 5, .awaited = 2, .joined = 7, .given = 3, .expected = 1};
  signal_counts there{.signaled = 1, .awaited = 6, .joined = 4, .given = 2, .expected = 2};
  std::uint64_t all_gathers_here = 9;
  std::uint64_t all_gathers_there = 4;
  const auto told_here = here.encode(all_gathers_here);
  here.agree(there.encode(all_gathers_there), all_gathers_here);
  there.agree(told_here, all_gathers_there);
  CHECK(here.signaled == 6);
  CHECK(here.signaled == there.awaited);
  CHECK(here.awaited == there.signaled);
  CHECK(here.joined == 7);
  CHECK(there.joined == 7);
  CHECK(here.given == there.expected);
  CHECK(here.expected == there.given);
  CHECK(here.released == here.expected);
  CHECK(all_gathers_here == 9);
  CHECK(all_gathers_there == 9);
}

namespace {

[[nodiscard]] std::deque<barrier_act> acts_of(barrier_kind kind,
                                              const std::vector<std::uint32_t>& list,
                                              std::uint32_t rank) {
  std::deque<barrier_act> acts;
  barrier_acts all(kind, list, rank);
  for (auto next = all.next(); next; next = all.next()) acts.push_back(*next);
  CHECK_FALSE(all.next());
  return acts;
}

}  // namespace

TEST_CASE("a rank leaves each kind of barrier only after all ranks have arrived") {
  for (const barrier_kind kind :
       {barrier_kind::centralized, barrier_kind::binary_tree, barrier_kind::dissemination})
    for (std::uint32_t count = 1; count <= 17; ++count) {
      CAPTURE(static_cast<int>(kind), count);
      // The list contains `count` ranks in descending order. The last of them is rank 10.
      std::vector<std::uint32_t> list(count);
      std::iota(list.rbegin(), list.rend(), 10U);
      const std::uint32_t late = list[count / 2];
      std::map<std::uint32_t, std::deque<barrier_act>> open;
      for (const std::uint32_t rank : list) open[rank] = acts_of(kind, list, rank);
      std::map<std::pair<std::uint32_t, std::uint32_t>, int> sent;
      // Simulates the ranks until each of them has finished or is waiting.
      const auto run = [&](bool has_come) {
        for (bool moves = true; moves;) {
          moves = false;
          for (auto& [rank, acts] : open) {
            if (rank == late && !has_come) continue;
            while (!acts.empty() && (acts.front().signals || sent[{acts.front().with, rank}] > 0)) {
              if (acts.front().signals)
                ++sent[{rank, acts.front().with}];
              else
                --sent[{acts.front().with, rank}];
              acts.pop_front();
              moves = true;
            }
          }
        }
      };
      run(false);
      for (const auto& [rank, acts] : open) CHECK(acts.empty() == (count == 1));
      run(true);
      for (const auto& [rank, acts] : open) CHECK(acts.empty());
      for (const auto& [pair, left] : sent) CHECK(left == 0);
    }
}

TEST_CASE("the kind of barrier changes at the documented number of ranks") {
  CHECK(kind_for(barrier_kind::by_size, 64) == barrier_kind::dissemination);
  CHECK(kind_for(barrier_kind::by_size, 65) == barrier_kind::binary_tree);
  CHECK(kind_for(barrier_kind::centralized, 65) == barrier_kind::centralized);
}

TEST_CASE("exceptions for lack of memory or threads become errors") {
  const auto kind_of = [](auto exception) {
    const auto failed = without_exceptions("join", [&]() -> result<void> { throw exception; });
    return failed.error().kind();
  };
  CHECK(kind_of(std::bad_alloc()) == error_kind::resource_exhausted);
  const std::system_error no_thread(
      std::make_error_code(std::errc::resource_unavailable_try_again));
  CHECK(kind_of(no_thread) == error_kind::resource_exhausted);
}
