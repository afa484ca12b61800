// SPDX-License-Identifier: Apache-2.0
#include "faults/faults.hpp"

#include "device/device.hpp"
#include "faults/fault_grammar.hpp"
#include "machine/machine.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>
#include <unordered_set>
#include <vector>

namespace softverbs::faults {
namespace {

/// What became of a fault, for good.
struct tally {
  std::string text;
  std::uint64_t came = 0;
  std::uint64_t struck = 0;
};

/// splitmix64: the same numbers everywhere for a seed.
class randomness {
 public:
  explicit randomness(std::uint64_t seed) noexcept : state_(seed) {}
  /// Less than `end`.
  std::uint64_t below(std::uint64_t end) noexcept {
    std::uint64_t bits = state_ += 0x9e37'79b9'7f4a'7c15U;
    bits = (bits ^ bits >> 30) * 0xbf58'476d'1ce4'e5b9U;
    bits = (bits ^ bits >> 27) * 0x94d0'49bb'1331'11ebU;
    return (bits ^ bits >> 31) % end;
  }

 private:
  std::uint64_t state_;
};

constexpr std::uint64_t usual_seed = 1;

struct pending : fault {
  std::size_t tally = 0;
  std::uint64_t seen = 0;
  nanoseconds due = 0;

  /// Counts; true if its turn has come.
  bool strikes(randomness& dice) noexcept {
    ++seen;
    if (chance != 0) return dice.below(1'000'000) < chance;
    return repeats ? seen >= first : seen == first;
  }
  bool is_over() const noexcept { return !repeats && seen >= first; }
};

/// Under the lock of the current engine, so that a child of fork finds it complete.
struct {
  std::vector<pending> faults;
  std::unordered_set<std::uint32_t> lost_pairs;
  bool all_lost = false;
  unsigned long long struck = 0;
  std::vector<tally> tallies;
  randomness dice{usual_seed};
  bool must_strike = false;
  /// Which process they were set in: a child of fork has its parent's, and is not asked.
  pid_t owner = 0;
} state;

/// A bit for each device.
using device_set = std::atomic<std::uint64_t>;
static_assert(max_devices <= 64);
std::array<device_set, max_ports> ports_down{};
device_set broken{0};

bool has(const device_set& set, unsigned device) noexcept {
  return (set.load(std::memory_order_relaxed) >> device & 1) != 0;
}

/// True if that changes anything.
bool change(device_set& set, unsigned device, bool on) noexcept {
  const std::uint64_t bit = std::uint64_t{1} << device;
  const std::uint64_t before = on ? set.fetch_or(bit) : set.fetch_and(~bit);
  return ((before & bit) != 0) != on;
}

void raise(unsigned device, unsigned port, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = static_cast<int>(port);
  machine::current().announce(device, event);
}

void break_devices(const effect& what) {
  for (unsigned device = 0; device < max_devices; ++device)
    if (what.target.value_or(device) == device && change(broken, device, true))
      raise(device, 1, IBV_EVENT_DEVICE_FATAL);
}

void change_ports(const effect& what, bool down) {
  for (unsigned device = 0; device < max_devices; ++device) {
    const device_description* known = described(device);
    if (known == nullptr || what.target.value_or(device) != device) continue;
    for (unsigned port = 1; port <= known->port_count; ++port)
      if (what.port.value_or(port) == port && change(ports_down[port - 1], device, down))
        raise(device, port, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
  }
}

/// As the configuration has them; true if one is down.
bool start_ports() noexcept {
  bool one_is_down = false;
  for (device_set& each : ports_down) each = 0;
  const auto& devices = configured().devices;
  for (unsigned device = 0; device < devices.size(); ++device)
    for (unsigned port = 0; port < devices[device].port_count; ++port)
      if (devices[device].ports[port].starts_down)
        one_is_down |= change(ports_down[port], device, true);
  return one_is_down;
}

void change_state(const effect& what) {
  switch (what.kind) {
    case effect_kind::port_down:
      return change_ports(what, true);
    case effect_kind::port_up:
      return change_ports(what, false);
    case effect_kind::device_fatal:
      return break_devices(what);
    case effect_kind::peer_lost:
      if (what.target)
        state.lost_pairs.insert(*what.target);
      else
        state.all_lost = true;
      return;
    case effect_kind::peer_back:
      if (what.target) {
        state.lost_pairs.erase(*what.target);
      } else {
        state.all_lost = false;
        state.lost_pairs.clear();
      }
      return;
    case effect_kind::seed:
      state.dice = randomness(what.seed);
      return;
    case effect_kind::must_strike:
      state.must_strike = true;
      return;
    default:
      return;
  }
}

/// Counts the occasion for all that wait for it, and has those act whose turn it is: changes of
/// state by themselves, the rest by `act`.
template <typename Concerns, typename Act>
void happen(Concerns concerns, Act act) {
  bool over = false;
  for (pending& each : state.faults) {
    if (!concerns(each)) continue;
    ++state.tallies[each.tally].came;
    if (!each.strikes(state.dice)) continue;
    ++state.tallies[each.tally].struck;
    ++state.struck;
    over |= each.is_over();
    change_state(each.what);
    act(each.what);
  }
  if (over) std::erase_if(state.faults, [](const pending& each) { return each.is_over(); });
}

bool is_silent(const place& where) noexcept {
  return port_is_down(where.port) || is_broken(where.port % max_devices) || state.all_lost ||
         state.lost_pairs.contains(where.pair);
}

/// When the first of those that wait for a time is due, 0 if there is none.
nanoseconds next_time() noexcept {
  nanoseconds next = 0;
  for (const pending& each : state.faults)
    if (each.when == occasion::time && (next == 0 || each.due < next)) next = each.due;
  return next;
}

/// The deadline of those that wait for a time.
class alarm final : public timed {
 public:
  explicit alarm(machine& on) noexcept : machine_(on) {}
  bool is_on(const machine& other) const noexcept { return &machine_ == &other; }
  void set() {
    if (const nanoseconds next = next_time()) machine_.engine.set_deadline(*this, next);
  }
  void on_deadline(nanoseconds time) override {
    happen([&](const pending& each) { return each.when == occasion::time && each.due <= time; },
           [](const effect&) {});
    set();
  }

 private:
  machine& machine_;
};

std::optional<alarm> the_alarm;

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

nanoseconds delay_by(const effect& what) noexcept {
  const auto more = static_cast<std::uint64_t>(what.longest - what.span);
  return what.span + static_cast<nanoseconds>(more == 0 ? 0 : state.dice.below(more + 1));
}

constexpr int unstruck_exit_code = 86;

/// A test whose fault never struck has tested nothing.
void say_unstruck(int status, void*) noexcept {
  bool all_struck = true;
  {
    const std::lock_guard held(machine::current().engine.lock());
    if (state.owner != ::getpid()) return;
    for (const tally& each : state.tallies) {
      if (each.struck != 0) continue;
      std::fprintf(stderr,
                   "softverbs: the fault \"%s\" never struck; its occasion came %llu times\n",
                   each.text.c_str(), static_cast<unsigned long long>(each.came));
      all_struck = false;
    }
    if (all_struck || !state.must_strike || status != 0) return;
  }
  std::fprintf(stderr, "softverbs: a fault that must strike didn't: exit code %d\n",
               unstruck_exit_code);
  machine::at_exit();
  std::fflush(nullptr);
  ::_exit(unstruck_exit_code);
}

void sleep(nanoseconds time) noexcept {
  const timespec wanted{time / 1'000'000'000, time % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &wanted, nullptr);
}

/// A fault as it was written.
struct written : fault {
  std::string text;
};

void add(const written& asked) {
  if (asked.when == occasion::at_once) {
    if (asked.what.kind != effect_kind::seed && asked.what.kind != effect_kind::must_strike)
      ++state.struck;
    return change_state(asked.what);
  }
  static const int registered = ::on_exit(say_unstruck, nullptr);
  static_cast<void>(registered);
  state.owner = ::getpid();
  pending added{asked};
  added.tally = state.tallies.size();
  state.tallies.push_back({asked.text});
  if (asked.when == occasion::time) {
    added.due = now() + asked.span;
  }
  state.faults.push_back(added);
}

bool read(const char* text, const char* origin, const char* consequence,
          std::vector<written>& into) {
  for (std::string_view rest(text); !rest.empty();) {
    const std::size_t length = std::min(rest.find(';'), rest.size());
    const std::string_view one = trimmed(rest.substr(0, length));
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (one.empty()) continue;
    const char* problem = nullptr;
    const auto found = read_fault(one, problem);
    if (!found) {
      std::fprintf(stderr, "softverbs: %s has \"%.*s\": %s; %s\n", origin,
                   static_cast<int>(one.size()), one.data(), problem, consequence);
      return false;
    }
    into.push_back({*found, std::string(one)});
  }
  return true;
}

}  // namespace

std::optional<answer> strike_now(std::size_t number, const ibv_context* context) {
  std::optional<effect> failure;
  nanoseconds delay = 0;
  const auto concerns = [=](const pending& each) {
    return each.when == occasion::verb && each.verb == number;
  };
  {
    const std::lock_guard held(machine::current().engine.lock());
    happen(concerns, [&](const effect& what) {
      if (what.kind == effect_kind::delay) delay += delay_by(what);
      if (what.kind == effect_kind::error && !failure) failure = what;
    });
  }
  if (delay != 0) sleep(delay);
  if (failure) return told(verbs[number], failure->told, failure->number);
  const soft_device* device = context == nullptr ? nullptr : soft_device_of(context);
  if (device == nullptr || !is_broken(device->number)) return std::nullopt;
  return told(verbs[number], form::usual, EIO);
}

verdict judge_now(std::uint32_t pair, bool receives) {
  verdict result;
  const auto concerns = [&](const pending& each) {
    return (each.when == occasion::work ||
            each.when == (receives ? occasion::receive : occasion::send)) &&
           each.pair.value_or(pair) == pair;
  };
  happen(concerns, [&](const effect& what) {
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

fate fate_now(const place& where) {
  fate result;
  result.lost = is_silent(where);
  const auto concerns = [&](const pending& each) {
    return each.when == occasion::packet && each.pair.value_or(where.pair) == where.pair;
  };
  happen(concerns, [&](const effect& what) {
    result.lost |= what.kind == effect_kind::loss;
    result.twice |= what.kind == effect_kind::twice;
    result.swapped |= what.kind == effect_kind::swap;
  });
  return result;
}

bool silences_now(const place& where) noexcept { return is_silent(where); }

/// They must not do by themselves what may have to fail here.
static void tell_peers(machine& on) noexcept {
  if (on.tables != nullptr) on.tables->faulty = any ? 1U : 0U;
}

void keep_time(machine& on) {
  if (!the_alarm || !the_alarm->is_on(on)) the_alarm.emplace(on);
  the_alarm->set();
  tell_peers(on);
}

bool port_is_down(station port) noexcept {
  return has(ports_down[port / max_devices], port % max_devices);
}
bool is_broken(unsigned device) noexcept { return has(broken, device); }

int inject(const char* text, const char* origin, const char* consequence) noexcept try {
  std::vector<written> asked;
  if (!read(text, origin, consequence, asked)) return EINVAL;
  if (asked.empty()) return 0;
  machine& here = machine::current();
  const std::lock_guard held(here.engine.lock());
  for (const written& each : asked) add(each);
  any = true;
  keep_time(here);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void reset() noexcept {
  const std::lock_guard held(machine::current().engine.lock());
  state = {};
  any = start_ports() || machine::current().engine.is_held();
  tell_peers(machine::current());
  if (broken.exchange(0) != 0) machine::current().announce_repair();
}

unsigned long long struck() noexcept {
  const std::lock_guard held(machine::current().engine.lock());
  return state.struck;
}

unsigned long long struck(const char* text) noexcept {
  const std::string_view wanted = trimmed(text);
  const std::lock_guard held(machine::current().engine.lock());
  unsigned long long sum = 0;
  bool found = false;
  for (const tally& each : state.tallies) {
    if (each.text != wanted) continue;
    found = true;
    sum += each.struck;
  }
  return found ? sum : ~0ULL;
}

void keep_to_engine() noexcept {
  any = true;
  tell_peers(machine::current());
}

bool read_environment() noexcept {
  static const bool makes_sense = [] {
    if (start_ports()) any = true;
    const char* text = std::getenv("SOFTVERBS_FAULTS");
    return text == nullptr || inject(text, "SOFTVERBS_FAULTS", "there will be no soft device") == 0;
  }();
  return makes_sense;
}

}  // namespace softverbs::faults
