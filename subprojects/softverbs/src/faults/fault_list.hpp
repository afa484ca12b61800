// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "faults/failing_verbs.hpp"
#include "faults/fault_grammar.hpp"

#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace softverbs::faults {

/// What a verb returns instead of doing its work.
struct answer {
  int value;
  operator int() const noexcept { return value; }
  template <typename Object>
  operator Object*() const noexcept {
    return nullptr;
  }
};

/// What happens to a work request.
struct verdict {
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint32_t vendor_code = 0;
  std::int64_t delay = 0;  ///< of its completion, in nanoseconds
  bool overtakable = false;
};

/// An error, in the way of that verb or in the one that was chosen; sets errno where that tells it.
answer told(const verb& which, form how, int error) noexcept;

/// splitmix64: the same numbers everywhere for a seed.
class randomness {
 public:
  explicit randomness(std::uint64_t seed) noexcept : state_(seed) {}
  /// Less than `end`.
  std::uint64_t below(std::uint64_t end) noexcept;

 private:
  std::uint64_t state_;
};

/// A fault as it was written.
struct written : fault {
  std::string text;
};

/// Reads a list of faults. False if it makes no sense: what is wrong is said on stderr, with where
/// the text comes from and what follows.
bool read_faults(const char* text, const char* origin, const char* consequence, device_names names,
                 std::vector<written>& into);

/// The faults that are set, how often the occasion of each came, and how often it struck. Whoever
/// has it sees to it that one thread at a time is in it.
class fault_list {
 public:
  /// Sets a fault that waits for something; one that is due at once is not for this list, but for
  /// `set_at_once`.
  void add(const written& asked);
  /// A seed, or that all must strike. False if it is a change of state.
  bool set_at_once(const effect& what) noexcept;
  /// A change of state at once counts as having struck.
  void count_change() noexcept { ++struck_; }

  /// Counts the occasion for all that wait for it, and has those act whose turn it is.
  template <typename Concerns, typename Act>
  void happen(Concerns concerns, Act act) {
    bool over = false;
    for (pending& each : faults_) {
      if (!concerns(each)) continue;
      ++tallies_[each.tally].came;
      if (!each.strikes(dice_)) continue;
      ++tallies_[each.tally].struck;
      ++struck_;
      over |= each.is_over();
      if (!set_at_once(each.what)) act(each.what);
    }
    if (over) forget_those_that_are_over();
  }

  /// Those that wait for a time that has come.
  template <typename Act>
  void happen_by(nanoseconds time, Act act) {
    happen([&](const pending& each) { return each.when == occasion::time && each.due <= time; },
           act);
  }

  /// What becomes of a call of this verb.
  struct call {
    nanoseconds delay = 0;
    bool fails = false;
    form how{};
    int error = 0;
  };
  template <typename Act>
  call next_call(std::size_t verb, Act act) {
    call result;
    happen([=](const pending& each) { return each.when == occasion::verb && each.verb == verb; },
           [&](const effect& what) {
             act(what);
             if (what.kind == effect_kind::delay) result.delay += delay_by(what);
             if (what.kind != effect_kind::error || result.fails) return;
             result.fails = true;
             result.how = what.told;
             result.error = what.number;
           });
    return result;
  }

  /// What becomes of the next work request of this queue pair.
  template <typename Act>
  verdict next_request(std::uint32_t pair, bool receives, Act act) {
    verdict result;
    const auto concerns = [&](const pending& each) {
      return (each.when == occasion::work ||
              each.when == (receives ? occasion::receive : occasion::send)) &&
             each.pair.value_or(pair) == pair;
    };
    happen(concerns, [&](const effect& what) {
      act(what);
      if (what.kind == effect_kind::delay) {
        result.delay += delay_by(what);
        result.overtakable |= what.overtakable;
      }
      if (what.kind != effect_kind::status || result.status != IBV_WC_SUCCESS) return;
      result.status = static_cast<ibv_wc_status>(what.number);
      result.vendor_code = what.vendor_code;
    });
    return result;
  }

  /// When the first of those that wait for a time is due, 0 if there is none.
  nanoseconds next_time() const noexcept;
  unsigned long long struck() const noexcept { return struck_; }
  /// How often the one of that text has, all ones if there is none.
  unsigned long long struck(const char* text) const noexcept;
  /// Names those on stderr that have never struck. True if that has to fail the process.
  bool say_unstruck() const noexcept;

 private:
  struct pending : fault {
    std::size_t tally = 0;
    std::uint64_t seen = 0;
    nanoseconds due = 0;

    /// Counts; true if its turn has come.
    bool strikes(randomness& dice) noexcept;
    bool is_over() const noexcept { return !repeats && seen >= first; }
  };
  /// What became of a fault, for good.
  struct tally {
    std::string text;
    std::uint64_t came = 0;
    std::uint64_t struck = 0;
  };

  nanoseconds delay_by(const effect& what) noexcept;
  void forget_those_that_are_over();

  static constexpr std::uint64_t usual_seed = 1;

  std::vector<pending> faults_;
  unsigned long long struck_ = 0;
  std::vector<tally> tallies_;
  randomness dice_{usual_seed};
  bool must_strike_ = false;
  /// Which process they were set in: a child of fork has its parent's, and is not asked.
  pid_t owner_ = 0;
};

/// For a verb that is late.
void sleep_for(nanoseconds time) noexcept;

/// Of a process whose fault, which had to strike, didn't.
inline constexpr int unstruck_exit_code = 86;
/// Says so on stderr, and ends the process with that code.
[[noreturn]] void exit_unstruck() noexcept;

/// The physical state of a port that a fault takes down (InfiniBand's PortPhysicalState
/// "Disabled").
inline constexpr std::uint8_t port_disabled = 3;

}  // namespace softverbs::faults
