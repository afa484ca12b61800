// SPDX-License-Identifier: Apache-2.0
#include "faults/faults.hpp"

#include "device/device.hpp"
#include "faults/fault_list.hpp"
#include "machine/machine.hpp"
#include "machine/port_traffic.hpp"

#include <dlfcn.h>
#include <sys/eventfd.h>
#include <unistd.h>

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

/// Protected by the lock of the current engine, so that a forked child finds it in a consistent
/// state.
struct {
  fault_list list;
  std::unordered_set<std::uint32_t> lost_pairs;
  bool all_lost = false;
  /// True if faults were set, or if a port is configured to be down.
  bool asked = false;
} state;

/// One bit for each device.
using device_set = std::atomic<std::uint64_t>;
static_assert(max_devices <= 64);
std::array<device_set, max_ports> ports_down{};
device_set broken{0};
std::array<std::atomic<unsigned>, max_devices> times_broken{};
/// An eventfd that is signaled when a device breaks; -1 until it is first requested.
std::atomic<int> told_of_breakages{-1};

bool has(const device_set& set, unsigned device) noexcept {
  return (set.load(std::memory_order_relaxed) >> device & 1) != 0;
}

/// Adds the device to the set, or removes it. Returns true if this changes the set.
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
    if (what.target.value_or(device) == device && change(broken, device, true)) {
      ++times_broken[device];
      raise(device, 1, IBV_EVENT_DEVICE_FATAL);
      if (const int descriptor = told_of_breakages; descriptor >= 0) ::eventfd_write(descriptor, 1);
    }
}

void change_ports(const effect& what, bool down) {
  for (unsigned device = 0; device < max_devices; ++device) {
    const device_description* known = described(device);
    if (known == nullptr || what.target.value_or(device) != device) continue;
    for (unsigned port = 1; port <= known->port_count; ++port)
      if (what.port.value_or(port) == port && change(ports_down[port - 1], device, down)) {
        if (down) ++port_traffic::of(station_of(device, port)).failures;
        raise(device, port, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
      }
  }
}

/// Sets the ports to their configured state. Returns true if at least one port is down.
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
    default:
      return;
  }
}

bool is_silent(const place& where) noexcept {
  return port_is_down(where.port) || is_broken(where.port % max_devices) || state.all_lost ||
         state.lost_pairs.contains(where.pair);
}

/// Makes the faults that wait for a time strike when that time has come.
class alarm final : public timed {
 public:
  explicit alarm(machine& on) noexcept : machine_(on) {}
  bool is_on(const machine& other) const noexcept { return &machine_ == &other; }
  void set() {
    if (const nanoseconds next = state.list.next_time()) machine_.engine.set_deadline(*this, next);
  }
  void on_deadline(nanoseconds time) override {
    state.list.happen_by(time, change_state);
    set();
  }

 private:
  machine& machine_;
};

std::optional<alarm> the_alarm;

/// Called at exit. Reports the faults that have never struck, because a test with such a fault has
/// tested nothing. If `must-strike` is set, a process that would have succeeded then fails.
void say_unstruck(int status, void*) noexcept {
  {
    const std::lock_guard held(machine::current().engine.lock());
    if (!state.list.say_unstruck() || status != 0) return;
  }
  machine::at_exit();
  exit_unstruck();
}

void add(const written& asked) {
  if (asked.when == occasion::at_once) {
    if (state.list.set_at_once(asked.what)) return;
    state.list.count_change();
    return change_state(asked.what);
  }
  static const int registered = ::on_exit(say_unstruck, nullptr);
  static_cast<void>(registered);
  state.list.add(asked);
}

}  // namespace

std::optional<answer> strike_now(std::size_t number, const ibv_context* context) {
  fault_list::call next;
  try {
    const std::lock_guard held(machine::current().engine.lock());
    next = state.list.next_call(number, change_state);
  } catch (const std::bad_alloc&) {
    // There was not enough memory, for example for the new machine of a forked child. The call
    // goes on, and probably fails for the same reason.
    return std::nullopt;
  }
  if (next.delay != 0) sleep_for(next.delay);
  if (next.fails) return told(verbs[number], next.how, next.error);
  const soft_device* device = context == nullptr ? nullptr : soft_device_of(context);
  if (device == nullptr || !is_broken(device->number)) return std::nullopt;
  return told(verbs[number], form::usual, EIO);
}

verdict judge_now(std::uint32_t pair, bool receives) {
  return state.list.next_request(pair, receives, change_state);
}

fate fate_now(const place& where) {
  fate result;
  result.lost = is_silent(where);
  const auto concerns = [&](const fault& each) {
    return each.when == occasion::packet && each.pair.value_or(where.pair) == where.pair;
  };
  state.list.happen(concerns, [&](const effect& what) {
    change_state(what);
    result.lost |= what.kind == effect_kind::loss;
    result.twice |= what.kind == effect_kind::twice;
    result.swapped |= what.kind == effect_kind::swap;
  });
  return result;
}

bool silences_now(const place& where) noexcept { return is_silent(where); }

/// Publishes to peers whether `any` is true. While `any` is true, peers must not access this
/// process's memory directly, because their operations may have to fail or to wait here.
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

unsigned breakages(unsigned device) noexcept { return times_broken[device]; }

int breakage_descriptor() noexcept {
  const std::lock_guard held(machine::current().engine.lock());
  if (told_of_breakages < 0) told_of_breakages = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return told_of_breakages;
}

void abandon_breakages() noexcept {
  if (const int descriptor = told_of_breakages.exchange(-1); descriptor >= 0) ::close(descriptor);
}

int inject(const char* text, const char* origin, const char* consequence) noexcept try {
  std::vector<written> asked;
  if (!read_faults(text, origin, consequence, device_names::soft, asked)) return EINVAL;
  if (asked.empty()) return 0;
  machine& here = machine::current();
  const std::lock_guard held(here.engine.lock());
  for (const written& each : asked) add(each);
  any = state.asked = true;
  keep_time(here);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void reset() noexcept {
  const std::lock_guard held(machine::current().engine.lock());
  state = {};
  state.asked = start_ports();
  any = state.asked || machine::current().engine.is_held();
  tell_peers(machine::current());
  if (broken.exchange(0) != 0) machine::current().announce_repair();
}

unsigned long long struck() noexcept {
  const std::lock_guard held(machine::current().engine.lock());
  return state.list.struck();
}

unsigned long long struck(const char* text) noexcept {
  const std::lock_guard held(machine::current().engine.lock());
  return state.list.struck(text);
}

void keep_to_engine() noexcept {
  any = true;
  tell_peers(machine::current());
}

void pass_by_engine() noexcept {
  any = state.asked;
  tell_peers(machine::current());
}

bool read_environment() noexcept {
  static const bool makes_sense = [] {
    if (start_ports()) any = state.asked = true;
    // If libsoftverbs-faults is loaded, it applies the faults to these devices, too.
    if (::dlsym(RTLD_DEFAULT, "softverbs_faults_in_front") != nullptr) return true;
    const char* text = std::getenv("SOFTVERBS_FAULTS");
    return text == nullptr || inject(text, "SOFTVERBS_FAULTS", "there will be no soft device") == 0;
  }();
  return makes_sense;
}

}  // namespace softverbs::faults
