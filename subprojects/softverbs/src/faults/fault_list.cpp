// SPDX-License-Identifier: Apache-2.0
#include "faults/fault_list.hpp"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>

namespace softverbs::faults {

answer told(const verb& which, form how, int error) noexcept {
  if (how == form::usual) {
    switch (which.reports) {
      case convention::returns_errno:
        return {error};
      case convention::negative_errno:
        return {-error};
      case convention::reregistration:
        errno = error;
        return {IBV_REREG_MR_ERR_CMD};
      default:
        errno = error;
        return {-1};
    }
  }
  if (how == form::minus_one) errno = error;
  return {how == form::minus_one ? -1 : how == form::negative ? -error : error};
}

std::uint64_t randomness::below(std::uint64_t end) noexcept {
  std::uint64_t bits = state_ += 0x9e37'79b9'7f4a'7c15U;
  bits = (bits ^ bits >> 30) * 0xbf58'476d'1ce4'e5b9U;
  bits = (bits ^ bits >> 27) * 0x94d0'49bb'1331'11ebU;
  return (bits ^ bits >> 31) % end;
}

bool read_faults(const char* text, const char* origin, const char* consequence, device_names names,
                 std::vector<written>& into) {
  for (std::string_view rest(text); !rest.empty();) {
    const std::size_t length = std::min(rest.find(';'), rest.size());
    const std::string_view one = trimmed(rest.substr(0, length));
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (one.empty()) continue;
    const char* problem = nullptr;
    const auto found = read_fault(one, names, problem);
    if (!found) {
      std::fprintf(stderr, "softverbs: %s has \"%.*s\": %s; %s\n", origin,
                   static_cast<int>(one.size()), one.data(), problem, consequence);
      return false;
    }
    into.push_back({*found, std::string(one)});
  }
  return true;
}

bool fault_list::pending::strikes(randomness& dice) noexcept {
  ++seen;
  if (chance != 0) return dice.below(1'000'000) < chance;
  return repeats ? seen >= first : seen == first;
}

void fault_list::add(const written& asked) {
  owner_ = ::getpid();
  pending added{asked};
  added.tally = tallies_.size();
  tallies_.push_back({asked.text});
  if (asked.when == occasion::time) added.due = now() + asked.span;
  faults_.push_back(added);
}

bool fault_list::set_at_once(const effect& what) noexcept {
  if (what.kind == effect_kind::seed) {
    dice_ = randomness(what.seed);
    return true;
  }
  must_strike_ |= what.kind == effect_kind::must_strike;
  return what.kind == effect_kind::must_strike;
}

void fault_list::forget_those_that_are_over() {
  std::erase_if(faults_, [](const pending& each) { return each.is_over(); });
}

nanoseconds fault_list::delay_by(const effect& what) noexcept {
  const auto more = static_cast<std::uint64_t>(what.longest - what.span);
  return what.span + static_cast<nanoseconds>(more == 0 ? 0 : dice_.below(more + 1));
}

nanoseconds fault_list::next_time() const noexcept {
  nanoseconds next = 0;
  for (const pending& each : faults_)
    if (each.when == occasion::time && (next == 0 || each.due < next)) next = each.due;
  return next;
}

unsigned long long fault_list::struck(const char* text) const noexcept {
  const std::string_view wanted = trimmed(text);
  unsigned long long sum = 0;
  bool found = false;
  for (const tally& each : tallies_) {
    if (each.text != wanted) continue;
    found = true;
    sum += each.struck;
  }
  return found ? sum : ~0ULL;
}

bool fault_list::say_unstruck() const noexcept {
  if (owner_ != ::getpid()) return false;
  bool all_struck = true;
  for (const tally& each : tallies_) {
    if (each.struck != 0) continue;
    std::fprintf(
        stderr, "softverbs: the fault \"%s\" never struck; its occasion arose %llu time%s\n",
        each.text.c_str(), static_cast<unsigned long long>(each.came), each.came == 1 ? "" : "s");
    all_struck = false;
  }
  return !all_struck && must_strike_;
}

void exit_unstruck() noexcept {
  std::fprintf(
      stderr, "softverbs: a fault never struck, but `must-strike` is set, so the exit code is %d\n",
      unstruck_exit_code);
  std::fflush(nullptr);
  ::_exit(unstruck_exit_code);
}

void sleep_for(nanoseconds time) noexcept {
  const timespec wanted{time / 1'000'000'000, time % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &wanted, nullptr);
}

}  // namespace softverbs::faults
