// SPDX-License-Identifier: Apache-2.0
#include "shim/shim.hpp"

#include "verbs/export.hpp"
#include <softverbs/softverbs.h>

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

namespace softverbs::shim {
namespace {

using faults::effect;
using faults::effect_kind;

/// Ensures that a forked child finds the lock free, and doesn't set its parent's clock.
void survive_fork() noexcept {
  ::pthread_atfork([] { all().lock.lock(); }, [] { all().lock.unlock(); },
                   [] {
                     all().clock = make_timer();
                     all().lock.unlock();
                   });
}

void say_unstruck(int status, void*) noexcept {
  {
    const std::lock_guard held(all().lock);
    if (!all().list.say_unstruck() || status != 0) return;
  }
  faults::exit_unstruck();
}

/// Applies a change to one device, without raising events. Returns true if the state has changed.
bool apply(const effect& what, device_state& to, unsigned port) noexcept {
  if (what.kind == effect_kind::device_fatal) return !std::exchange(to.broken, true);
  const bool down = what.kind == effect_kind::port_down;
  const bool was_down = to.ports_down[port];
  to.ports_down[port] = down;
  return was_down != down;
}

bool concerns(const effect& what, const device_state& device) {
  return what.device.empty() || what.device == device.name;
}

void raise(const device_state& of, unsigned port, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = static_cast<int>(port);
  for (context_record* each : all().open) {
    if (each->device != &of || port > each->ports) continue;
    each->raised.push_back(event);
    each->events.ring(true);
  }
}

void change(const effect& what, device_state& device, bool tells) {
  if (what.kind == effect_kind::device_fatal) {
    if (!apply(what, device, 0) || !tells) return;
    raise(device, 1, IBV_EVENT_DEVICE_FATAL);
    // The threads that wait on the device's channels are woken, because no completion can be polled
    // while the device is broken.
    for (channel_record* each : all().open_channels)
      if (each->opened->device == &device) each->events.ring(true);
    return;
  }
  const bool down = what.kind == effect_kind::port_down;
  for (unsigned port = 1; port < device.ports_down.size(); ++port)
    if (what.port.value_or(port) == port && apply(what, device, port) && tells)
      raise(device, port, down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
}

int inject(const char* text, const char* origin, const char* consequence) noexcept try {
  std::vector<faults::written> asked;
  if (!faults::read_faults(text, origin, consequence, faults::device_names::any, asked))
    return EINVAL;
  if (asked.empty()) return 0;
  everything& here = all();
  const std::lock_guard held(here.lock);
  if (!std::exchange(here.any_set, true)) attention.fetch_add(1);
  for (const faults::written& each : asked) {
    if (each.when == faults::occasion::at_once) {
      if (here.list.set_at_once(each.what)) continue;
      here.list.count_change();
      change_state(each.what);
      continue;
    }
    static const int registered = ::on_exit(say_unstruck, nullptr);
    static_cast<void>(registered);
    here.list.add(each);
  }
  keep_time();
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void reset() noexcept {
  everything& here = all();
  const std::lock_guard held(here.lock);
  here.list = {};
  here.changes.clear();
  for (device_state& each : here.devices) {
    each.ports_down.reset();
    each.broken = false;
  }
  for (channel_record* each : here.open_channels) each->events.ring(false);
  set_timer(here.clock.get(), 0);
  if (std::exchange(here.any_set, false)) attention.fetch_sub(1);
}

}  // namespace

everything& all() noexcept {
  // Never destroyed, because programs call verbs until they exit.
  static auto* const result = [] {
    auto* made = new everything;
    survive_fork();
    return made;
  }();
  return *result;
}

thread_local int entry::depth = 0;

std::optional<faults::answer> entry::strike_now(std::size_t verb, const ibv_context* context) {
  faults::fault_list::call next;
  bool broken = false;
  {
    const std::lock_guard held(all().lock);
    keep_time();
    next = all().list.next_call(verb, change_state);
    const context_record* opened = context == nullptr ? nullptr : all().contexts.find(context);
    broken = opened != nullptr && opened->device->broken;
  }
  if (next.delay != 0) faults::sleep_for(next.delay);
  if (next.fails) return faults::told(faults::verbs[verb], next.how, next.error);
  if (!broken) return std::nullopt;
  return faults::told(faults::verbs[verb], faults::form::usual, EIO);
}

device_state& state_of(const char* device) {
  for (device_state& each : all().devices)
    if (each.name == device) return each;
  device_state& added = all().devices.emplace_back();
  added.name = device;
  for (const effect& each : all().changes)
    if (concerns(each, added)) change(each, added, false);
  return added;
}

void change_state(const effect& what) {
  if (what.kind != effect_kind::port_down && what.kind != effect_kind::port_up &&
      what.kind != effect_kind::device_fatal)
    return;
  all().changes.push_back(what);
  for (device_state& each : all().devices)
    if (concerns(what, each)) change(what, each, true);
}

void keep_time() {
  if (!all().any_set) return;
  all().list.happen_by(now(), change_state);
  set_timer(all().clock.get(), all().list.next_time());
}

bool read_environment() noexcept {
  static const bool makes_sense = [] {
    const char* text = std::getenv("SOFTVERBS_FAULTS");
    return text == nullptr || inject(text, "SOFTVERBS_FAULTS", "no device is listed") == 0;
  }();
  return makes_sense;
}

}  // namespace softverbs::shim

using namespace softverbs;

// softverbs_inject and softverbs_reset_faults first apply the faults listed in the environment
// variable SOFTVERBS_FAULTS, unless that was already done.

SOFTVERBS_EXPORT int softverbs_inject(const char* text) {
  shim::read_environment();
  return shim::inject(text, "the argument of softverbs_inject", "no fault was set");
}

SOFTVERBS_EXPORT void softverbs_reset_faults(void) {
  shim::read_environment();
  shim::reset();
}

SOFTVERBS_EXPORT unsigned long long softverbs_faults_struck(void) {
  const std::lock_guard held(shim::all().lock);
  shim::keep_time();
  return shim::all().list.struck();
}

SOFTVERBS_EXPORT unsigned long long softverbs_fault_struck(const char* text) {
  const std::lock_guard held(shim::all().lock);
  shim::keep_time();
  return shim::all().list.struck(text);
}

/// If this function exists, the software devices of this process leave the faults to this library.
SOFTVERBS_EXPORT int softverbs_faults_in_front(void);
int softverbs_faults_in_front(void) { return 1; }
