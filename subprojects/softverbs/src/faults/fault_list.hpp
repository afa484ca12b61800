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

/// The result that a verb returns when a fault makes it fail.
struct answer {
  int value;
  operator int() const noexcept { return value; }
  template <typename Object>
  operator Object*() const noexcept {
    return nullptr;
  }
};

/// The effect of faults on a work request.
struct verdict {
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint32_t vendor_code = 0;
  std::int64_t delay = 0;  ///< the delay of its completion, in nanoseconds
  bool overtakable = false;
};

/// Returns an error in the given form, and sets errno if the form includes it.
answer told(const verb& which, form how, int error) noexcept;

/// The generator splitmix64: a seed yields the same numbers on every machine.
class randomness {
 public:
  explicit randomness(std::uint64_t seed) noexcept : state_(seed) {}
  /// Returns a number less than `end`.
  std::uint64_t below(std::uint64_t end) noexcept;

 private:
  std::uint64_t state_;
};

/// A fault and its text.
struct written : fault {
  std::string text;
};

/// Reads a list of faults. On failure, returns false and prints the error on stderr, with `origin`,
/// which names the source of the text, and `consequence`, which says what happens because of the
/// error.
bool read_faults(const char* text, const char* origin, const char* consequence, device_names names,
                 std::vector<written>& into);

/// The faults that are set. Counts how often each fault has struck and, until it can't strike any
/// more, how often its occasion has arisen. Not thread-safe.
class fault_list {
 public:
  /// Sets a fault that waits for an occasion. Faults that take effect immediately are not added:
  /// see `set_at_once` and `count_change`.
  void add(const written& asked);
  /// Applies the effect if it is a seed or `must-strike`. Otherwise, does nothing and returns
  /// false.
  bool set_at_once(const effect& what) noexcept;
  /// Counts one strike. Called for a change of state that takes effect immediately, without an
  /// occasion.
  void count_change() noexcept { ++struck_; }

  /// Counts an occasion for all faults that wait for it, and calls `act` for those that strike.
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

  /// Calls `act` for the faults whose time has come.
  template <typename Act>
  void happen_by(nanoseconds time, Act act) {
    happen([&](const pending& each) { return each.when == occasion::time && each.due <= time; },
           act);
  }

  /// The effect of faults on a call of a verb.
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

  /// Returns the effect of faults on the next work request of this queue pair.
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

  /// Returns the earliest time for which a fault waits, or 0 if no fault waits for a time.
  nanoseconds next_time() const noexcept;
  unsigned long long struck() const noexcept { return struck_; }
  /// Returns how often the fault with this text has struck, or ULLONG_MAX if no fault has this
  /// text.
  unsigned long long struck(const char* text) const noexcept;
  /// Prints on stderr the faults that have never struck. Returns true if the process must fail
  /// because of them.
  bool say_unstruck() const noexcept;

 private:
  struct pending : fault {
    std::size_t tally = 0;
    std::uint64_t seen = 0;
    nanoseconds due = 0;

    /// Counts the occasion. Returns true if the fault strikes.
    bool strikes(randomness& dice) noexcept;
    bool is_over() const noexcept { return !repeats && seen >= first; }
  };
  /// The number of occasions and strikes of a fault, kept even after the fault has had its last
  /// effect.
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
  /// The process that last set a fault. A forked child inherits the faults, but reports those that
  /// haven't struck only if it sets faults itself.
  pid_t owner_ = 0;
};

/// Delays the calling verb.
void sleep_for(nanoseconds time) noexcept;

/// The exit code that replaces 0 if a fault has not struck although `must-strike` requires it.
inline constexpr int unstruck_exit_code = 86;
/// Prints the reason on stderr, and ends the process with `unstruck_exit_code`.
[[noreturn]] void exit_unstruck() noexcept;

/// The physical state of a port that a fault takes down (InfiniBand's PortPhysicalState
/// "Disabled").
inline constexpr std::uint8_t port_disabled = 3;

}  // namespace softverbs::faults
