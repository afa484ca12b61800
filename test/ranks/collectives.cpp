// SPDX-License-Identifier: Apache-2.0
#include "worlds.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// A text of fixed size, which shows the order in which values were combined.
struct text {
  std::array<char, 256> letters{};

  text() = default;
  explicit text(std::string_view from) { std::ranges::copy(from, letters.begin()); }
  [[nodiscard]] std::string_view view() const { return letters.data(); }
};

[[nodiscard]] text in_brackets(const text& left, const text& right) {
  return text("(" + std::string(left.view()) + " " + std::string(right.view()) + ")");
}

/// A linear function. The composition of linear functions is associative but not commutative, so
/// the result depends on the order of the ranks.
struct line {
  std::uint64_t factor = 1;
  std::uint64_t offset = 0;

  friend bool operator==(const line&, const line&) = default;
};

[[nodiscard]] line composed(const line& first, const line& second) {
  return {first.factor * second.factor, first.offset * second.factor + second.offset};
}
[[nodiscard]] line line_of(std::uint32_t rank, std::uint32_t round) {
  return {2 * rank + 3, rank + round};
}

[[nodiscard]] bool blames(const group_error& failed, std::uint32_t rank, error_kind kind) {
  return failed.peer() == rank && static_cast<error>(failed).kind() == kind;
}

}  // namespace

TEST_CASE("collective steps have the right values for each size and root", "[not-in-vm]") {
  // The channels first request no inline data, and then 64 bytes of it. The device may grant more
  // than that.
  for (const std::uint32_t inline_bytes : {0U, 64U})
    for (std::uint32_t count = 1; count <= 9; ++count) {
      local_worlds all(count, inline_bytes);
      on_threads(count, [&](std::uint32_t rank) {
        world& mine = all.ranks[rank];
        for (std::uint32_t round = 0; round < 2 * count; ++round) {
          const std::uint32_t root = round % count;
          // steady: in each of the first rounds, this pause makes a different rank late; the test
          // also passes if that rank is not late
          if (round == rank) std::this_thread::sleep_for(std::chrono::microseconds(200));
          const line own = line_of(rank, round);
          require(must(mine.broadcast(own, root, patience)) == line_of(root, round),
                  "the root's value is wrong");
          const std::vector<line> gathered = must(mine.gather(own, root, patience));
          require(gathered.size() == (rank == root ? count : 0),
                  "the number of gathered values is wrong");
          const std::vector<line> of_all = must(mine.all_gather(own, patience));
          require(of_all.size() == count, "the number of values is wrong");
          line expected{};
          for (std::uint32_t each = 0; each < count; ++each) {
            require(of_all[each] == line_of(each, round), "a value is wrong");
            require(rank != root || gathered[each] == line_of(each, round),
                    "a gathered value is wrong");
            expected = composed(expected, line_of(each, round));
          }
          require(must(mine.all_reduce(own, composed, patience)) == expected,
                  "the reduced value is wrong");
          require(must(mine.broadcast(static_cast<std::uint8_t>(rank), root, patience)) == root,
                  "the root's byte is wrong");
        }
      });
    }
}

TEST_CASE("values are combined in an order that depends only on the number of ranks") {
  const std::array<std::string_view, 9> expected{"0",
                                                 "(0 1)",
                                                 "((0 1) 2)",
                                                 "((0 1) (2 3))",
                                                 "(((0 1) (2 3)) 4)",
                                                 "(((0 1) (2 3)) (4 5))",
                                                 "(((0 1) (2 3)) ((4 5) 6))",
                                                 "(((0 1) (2 3)) ((4 5) (6 7)))",
                                                 "((((0 1) (2 3)) ((4 5) (6 7))) 8)"};
  for (std::uint32_t count = 1; count <= expected.size(); ++count) {
    local_worlds all(count);
    on_threads(count, [&](std::uint32_t rank) {
      const text order =
          must(all.ranks[rank].all_reduce(text(std::to_string(rank)), in_brackets, patience));
      require(order.view() == expected[count - 1],
              "the values were not combined in the order of the ranks");
    });
  }
}

TEST_CASE("a slow rank gets each broadcast value although other ranks run ahead") {
  constexpr std::uint32_t rounds = 50;
  local_worlds all(4);
  std::atomic<std::uint32_t> at_root{0};
  on_threads(4, [&](std::uint32_t rank) {
    for (std::uint32_t round = 0; round < rounds; ++round) {
      // Rank 1 gets its value from the root, which can be up to two rounds ahead of it.
      if (rank == 1 && round == 0) wait_until([&] { return at_root == 2; }, "the root to go ahead");
      // steady: this pause makes the rank late in most rounds; the test also passes if it is not
      // late
      if (rank == 1) std::this_thread::sleep_for(std::chrono::microseconds(200));
      require(must(all.ranks[rank].broadcast(text(std::to_string(round)), 0, patience)).view() ==
                  std::to_string(round),
              "the value is from another round");
      if (rank == 0) at_root = round + 1;
      if (rank == 1) require(at_root <= round + 3, "the root did not wait for the other ranks");
    }
    for (std::uint32_t round = 0; round < rounds; ++round) {
      // steady: this pause makes the rank late in most rounds; the test also passes if it is not
      // late
      if (rank == 3) std::this_thread::sleep_for(std::chrono::microseconds(200));
      const auto values = must(all.ranks[rank].gather(rank + round, 3, patience));
      for (std::uint32_t each = 0; each < values.size(); ++each)
        require(values[each] == each + round, "a value is from another round");
    }
  });
}

TEST_CASE("a collective step that times out names the missing rank and later steps work",
          "[long][not-in-vm]") {
  constexpr std::uint32_t count = 5;
  const std::vector<std::function<group_result<void>(world&, const wait_limit&)>> steps{
      [](world& mine, const wait_limit& limit) -> group_result<void> {
        VERBSPP_TRYV(mine.all_gather(mine.rank(), limit));
        return success();
      },
      [](world& mine, const wait_limit& limit) -> group_result<void> {
        VERBSPP_TRYV(mine.all_reduce(mine.rank(), std::plus<>(), limit));
        return success();
      },
      [](world& mine, const wait_limit& limit) -> group_result<void> {
        VERBSPP_TRYV(mine.broadcast(mine.rank(), 2, limit));
        return success();
      },
      [](world& mine, const wait_limit& limit) -> group_result<void> {
        VERBSPP_TRYV(mine.gather(mine.rank(), 0, limit));
        return success();
      },
  };
  local_worlds all(count);
  // There are more rounds than buffers for values, so the buffers are reused.
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool is_for_all = i < 2;
      std::atomic<std::uint32_t> done{0};
      on_threads(count, [&](std::uint32_t rank) {
        if (rank == 2) wait_until([&] { return done == count - 1; }, "the others to be done");
        const auto stepped = steps[i](all.ranks[rank], rank == 2 ? 200ms : 3000ms);
        ++done;
        // Here, a gather fails only at its root, because the other ranks only send their values.
        const bool has_to_fail = is_for_all || (i == 2 ? rank != 2 : rank == 0);
        if (rank == 2) return;
        require(stepped.has_value() != has_to_fail, "the step failed on the wrong ranks");
        if (has_to_fail)
          require(blames(stepped.assume_error(), 2, error_kind::timed_out),
                  "rank 2 is not reported as missing");
        require(all.ranks[rank].peers().connected().size() == count, "a connection broke");
      });
    }
    on_threads(count, [&](std::uint32_t rank) {
      world& mine = all.ranks[rank];
      for (std::uint32_t root = 0; root < count; ++root) {
        require(must(mine.broadcast(10 * rank + round, root, patience)) == 10 * root + round,
                "the next broadcast returns a wrong value");
        require(must(mine.gather(rank, root, patience)).size() == (rank == root ? count : 0),
                "the next gather returns a wrong number of values");
        require(must(mine.all_reduce(rank, std::plus<>(), patience)) == 10,
                "the next sum is wrong");
        require(must(mine.all_gather(rank + round, patience))[root] == root + round,
                "the next all_gather returns a wrong value");
      }
    });
  }
}

TEST_CASE("a rank that enters a broadcast late gets the value of that broadcast") {
  local_worlds all(2);
  std::atomic<bool> is_ahead{false};
  on_threads(2, [&](std::uint32_t rank) {
    world& mine = all.ranks[rank];
    if (rank == 0) {
      must(mine.broadcast(1, 0, patience));
      must(mine.broadcast(2, 0, patience));
      // Rank 1 has not entered the first broadcast yet, so there is no room for a third value.
      require(blames(failure_of(mine.broadcast(3, 0, 100ms)), 1, error_kind::timed_out),
              "rank 1 is not reported as missing");
      is_ahead = true;
      require(must(mine.broadcast(4, 0, patience)) == 4,
              "the fourth broadcast returns a wrong value");
      return;
    }
    wait_until([&] { return is_ahead.load(); }, "the root to go ahead");
    require(must(mine.broadcast(0, 0, patience)) == 1, "the first broadcast returns a wrong value");
    require(must(mine.broadcast(0, 0, patience)) == 2,
            "the second broadcast returns a wrong value");
    // The root gave up on the third broadcast before it sent the value. So this step fails, and the
    // one after it returns the fourth value.
    require(blames(failure_of(mine.broadcast(0, 0, patience)), 0, error_kind::timed_out),
            "the third broadcast was not aborted");
    require(must(mine.broadcast(0, 0, patience)) == 4,
            "the fourth broadcast returns a wrong value");
  });
}

TEST_CASE("collective steps work again after broken connections are reconnected") {
  local_worlds all(5);
  for (std::uint32_t round = 0; round < 3; ++round) {
    break_link(all.ranks[0], all.ranks[4]);
    on_threads(5, [&](std::uint32_t rank) {
      world& mine = all.ranks[rank];
      // Ranks 0 and 4 are neighbours in the tree, so the sum fails, and each of them blames the
      // other one.
      const auto sum = mine.all_reduce(rank, std::plus<>(), 3s);
      require(sum.has_value() || (rank != 0 && rank != 4) || sum.assume_error().peer() == 4 - rank,
              "the other end of the connection is not blamed");
      require(!sum.has_value() || (rank != 0 && rank != 4),
              "a step succeeded at an end of the broken connection");
      // Rank 3 enters one step more than the other ranks.
      if (rank == 3) static_cast<void>(mine.broadcast(rank, 3, 50ms));
      must(mine.mend(patience));
      require(must(mine.all_reduce(rank, std::plus<>(), patience)) == 10, "the sum is wrong");
      require(must(mine.broadcast(rank, round, patience)) == round, "the root's value is wrong");
      require(must(mine.all_gather(rank, patience))[round] == round, "a value is wrong");
      require(must(mine.gather(rank, 4, patience)).size() == (rank == 4 ? 5 : 0),
              "the number of gathered values is wrong");
      require(mine.barrier(patience).has_value(), "a barrier failed");
    });
  }
}

TEST_CASE(
    "after a world is reconnected, values arrive even if ranks entered different numbers of "
    "steps") {
  // In one case, the root enters more steps, so its values are not received. In the other case, the
  // other rank enters more steps, so the values for which it waits do not arrive.
  for (const std::uint32_t ahead : {0U, 1U}) {
    local_worlds all(2);
    const auto comes_alone = [&] {
      for (std::uint32_t round = 0; round < 3; ++round)
        static_cast<void>(all.ranks[ahead].broadcast(1000 + round, 0, 50ms));
    };
    comes_alone();
    static_cast<void>(all.ranks[ahead].all_gather(ahead, 50ms));
    on_threads(2, [&](std::uint32_t rank) {
      world& mine = all.ranks[rank];
      must(mine.mend(patience));
      require(must(mine.all_gather(rank + 5, patience)) == std::vector<std::uint32_t>{5, 6},
              "the values of the two ranks are wrong");
      for (std::uint32_t round = 0; round < 5; ++round)
        require(must(mine.broadcast(round, 0, patience)) == round, "the root's value is wrong");
    });
    // Now both ranks enter the same three steps, but one rank only after the other one has left
    // them. There must still be room for later values after that.
    comes_alone();
    for (std::uint32_t round = 0; round < 3; ++round)
      static_cast<void>(all.ranks[1 - ahead].broadcast(2000 + round, 0, patience));
    on_threads(2, [&](std::uint32_t rank) {
      for (std::uint32_t round = 0; round < 5; ++round)
        require(must(all.ranks[rank].broadcast(round, 0, patience)) == round,
                "the next value is wrong");
    });
  }
}

namespace {

/// The exception that the combining function throws in this test. A failed requirement throws a
/// different type.
struct no_sum {};

/// Calculates three sums in which the combining function throws at one rank, and checks that all
/// other ranks report that rank's failure. First, a successful sum connects the ranks, because a
/// rank reports only to ranks to which it is connected. Another successful sum comes last.
void throw_in_sums(std::vector<world>& ranks, std::uint32_t thrower) {
  const auto count = static_cast<std::uint32_t>(ranks.size());
  std::atomic<std::uint32_t> done{0};
  on_threads(count, [&](std::uint32_t rank) {
    world& mine = ranks[rank];
    const auto sums_well = [&] {
      const std::uint32_t sum = must(mine.all_reduce(rank, std::plus<>(), patience));
      require(sum == count * (count - 1) / 2, "the sum is wrong");
    };
    sums_well();
    for (std::uint32_t round = 0; round < 3; ++round) {
      bool has_thrown = false;
      const auto add = [&](std::uint32_t left, std::uint32_t right) {
        if (rank == thrower) throw no_sum();
        return left + right;
      };
      const auto start = std::chrono::steady_clock::now();
      try {
        const group_error failed = failure_of(mine.all_reduce(rank, add, 3 * patience));
        require(blames(failed, thrower, error_kind::cancelled), failed.message().c_str());
        require(failed.failed() == 1, failed.message().c_str());
      } catch (const no_sum&) {
        has_thrown = true;
      }
      require(has_thrown == (rank == thrower), "the wrong rank threw an exception");
      require(std::chrono::steady_clock::now() < start + 2 * patience,
              "the rank was not notified in time");
      ++done;
      wait_until([&] { return done >= count * (round + 1); }, "all ranks to be done", 4 * patience);
    }
    sums_well();
  });
}

}  // namespace

TEST_CASE(
    "an exception thrown while values are combined is passed on and other ranks are notified") {
  local_worlds all(4);
  throw_in_sums(all.ranks, 2);
  // The rank that throws is connected to only two other ranks, so its report has to be forwarded.
  lazy_worlds some(8);
  throw_in_sums(some.ranks, 6);
}

TEST_CASE("ranks that call different steps detect it", "[long]") {
  local_worlds all(2);
  const auto differ = [&](auto first, auto second) {
    on_threads(2, [&](std::uint32_t rank) {
      const auto done = rank == 0 ? first(all.ranks[0]) : second(all.ranks[1]);
      require(!done.has_value(), "the step succeeded");
      require(blames(done.error(), 1 - rank, error_kind::mismatch), "the other rank is not blamed");
    });
    on_threads(2, [&](std::uint32_t rank) {
      must(all.ranks[rank].mend(patience));
      require(all.ranks[rank].barrier(patience).has_value(), "the next barrier failed");
    });
  };
  const auto sum_of = [](auto value) {
    return [value](world& mine) { return mine.all_reduce(value, std::plus<>(), 4s); };
  };
  differ(sum_of(1), [](world& mine) -> group_result<int> {
    VERBSPP_TRY(sum, mine.all_reduce(std::uint64_t{1}, std::plus<>(), 4s));
    return static_cast<int>(sum);
  });
  differ(
      [](world& mine) -> group_result<void> {
        VERBSPP_TRYV(mine.barrier(4s));
        return success();
      },
      [](world& mine) -> group_result<void> {
        VERBSPP_TRYV(mine.all_gather(1, 4s));
        return success();
      });
  differ([](world& mine) { return mine.barrier(4s, barrier_kind::centralized); },
         [](world& mine) { return mine.barrier(4s, barrier_kind::dissemination); });
}

TEST_CASE("a root that is not a rank is refused") {
  local_worlds one(1);
  CHECK(static_cast<error>(failure_of(one.ranks[0].broadcast(1, 1, patience))).kind() ==
        error_kind::invalid_input);
  CHECK(static_cast<error>(failure_of(one.ranks[0].gather(1, 7, patience))).kind() ==
        error_kind::invalid_input);
  CHECK(must(one.ranks[0].gather(5, 0, patience)) == std::vector{5});
  CHECK(must(one.ranks[0].all_reduce(5, std::plus<>(), patience)) == 5);
}
