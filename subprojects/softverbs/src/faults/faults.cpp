// SPDX-License-Identifier: Apache-2.0
#include "faults/faults.hpp"

#include "device/device.hpp"
#include "faults/fault_grammar.hpp"
#include "machine/machine.hpp"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_set>
#include <vector>

namespace softverbs::faults {
namespace {

struct pending : fault {
  std::uint64_t seen = 0;
  nanoseconds due = 0;

  /// Counts; true if its turn has come.
  bool strikes() noexcept {
    ++seen;
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
} state;

/// A bit for each device.
using device_set = std::atomic<std::uint64_t>;
static_assert(max_devices <= 64);
device_set ports_down{0};
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

void raise(unsigned device, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = 1;
  machine::current().announce(device, event);
}

void change_devices(const effect& what, device_set& set, bool on, ibv_event_type type) {
  for (unsigned device = 0; device < max_devices; ++device)
    if (what.target.value_or(device) == device && change(set, device, on)) raise(device, type);
}

void change_state(const effect& what) {
  switch (what.kind) {
    case effect_kind::port_down:
      return change_devices(what, ports_down, true, IBV_EVENT_PORT_ERR);
    case effect_kind::port_up:
      return change_devices(what, ports_down, false, IBV_EVENT_PORT_ACTIVE);
    case effect_kind::device_fatal:
      return change_devices(what, broken, true, IBV_EVENT_DEVICE_FATAL);
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
    if (!concerns(each) || !each.strikes()) continue;
    ++state.struck;
    over |= each.is_over();
    change_state(each.what);
    act(each.what);
  }
  if (over) std::erase_if(state.faults, [](const pending& each) { return each.is_over(); });
}

bool is_silent(const place& where) noexcept {
  return has(ports_down, where.device) || has(broken, where.device) || state.all_lost ||
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

void sleep(nanoseconds time) noexcept {
  const timespec wanted{time / 1'000'000'000, time % 1'000'000'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &wanted, nullptr);
}

void add(const fault& asked) {
  if (asked.when == occasion::at_once) {
    ++state.struck;
    return change_state(asked.what);
  }
  pending added{asked};
  if (asked.when == occasion::time) {
    added.due = now() + asked.span;
  }
  state.faults.push_back(added);
}

bool read(const char* text, const char* origin, const char* consequence, std::vector<fault>& into) {
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
    into.push_back(*found);
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
      if (what.kind == effect_kind::delay) delay += what.span;
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
    if (what.kind == effect_kind::delay) result.delay += what.span;
    if (what.kind != effect_kind::status || result.status != IBV_WC_SUCCESS) return;
    result.status = static_cast<ibv_wc_status>(what.number);
    result.vendor_code = what.vendor_code;
  });
  return result;
}

bool loses_now(const place& where) {
  bool lost = is_silent(where);
  const auto concerns = [&](const pending& each) {
    return each.when == occasion::packet && each.pair.value_or(where.pair) == where.pair;
  };
  happen(concerns, [&](const effect& what) { lost |= what.kind == effect_kind::loss; });
  return lost;
}

bool silences_now(const place& where) noexcept { return is_silent(where); }

void keep_time(machine& on) {
  if (!the_alarm || !the_alarm->is_on(on)) the_alarm.emplace(on);
  the_alarm->set();
}

bool port_is_down(unsigned device) noexcept { return has(ports_down, device); }
bool is_broken(unsigned device) noexcept { return has(broken, device); }

int inject(const char* text, const char* origin, const char* consequence) noexcept try {
  std::vector<fault> asked;
  if (!read(text, origin, consequence, asked)) return EINVAL;
  if (asked.empty()) return 0;
  machine& here = machine::current();
  const std::lock_guard held(here.engine.lock());
  for (const fault& each : asked) add(each);
  any = true;
  keep_time(here);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void reset() noexcept {
  const std::lock_guard held(machine::current().engine.lock());
  any = false;
  state = {};
  ports_down = 0;
  broken = 0;
}

unsigned long long struck() noexcept {
  const std::lock_guard held(machine::current().engine.lock());
  return state.struck;
}

bool read_environment() noexcept {
  static const bool makes_sense = [] {
    const char* text = std::getenv("SOFTVERBS_FAULTS");
    return text == nullptr || inject(text, "SOFTVERBS_FAULTS", "there will be no soft device") == 0;
  }();
  return makes_sense;
}

}  // namespace softverbs::faults
