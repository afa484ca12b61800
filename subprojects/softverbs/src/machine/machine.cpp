// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

namespace softverbs {
namespace {

/// The process' machine. Never freed: threads of the program may still call verbs
/// while it exits.
std::atomic<machine*> the_machine{nullptr};

/// What a child of fork inherited; kept, because open contexts refer to it.
machine* abandoned = nullptr;

/// Held while devices are opened and closed; never together with an engine's lock
/// but in this order.
std::mutex lifecycle;

}  // namespace

machine& machine::current() {
  if (machine* existing = the_machine.load(std::memory_order_acquire)) return *existing;
  const std::lock_guard held(lifecycle);
  if (machine* existing = the_machine.load(std::memory_order_acquire)) return *existing;
  static const int registered = [] {
    std::atexit(&machine::at_exit);
    return ::pthread_atfork(&machine::before_fork, &machine::after_fork_in_parent,
                            &machine::after_fork_in_child);
  }();
  static_cast<void>(registered);
  auto* created = new machine;
  created->predecessor_ = abandoned;
  the_machine.store(created, std::memory_order_release);
  return *created;
}

void machine::before_fork() noexcept {
  lifecycle.lock();
  if (machine* existing = the_machine.load(std::memory_order_acquire))
    existing->engine.lock().lock();
}

void machine::after_fork_in_parent() noexcept {
  if (machine* existing = the_machine.load(std::memory_order_acquire))
    existing->engine.lock().unlock();
  lifecycle.unlock();
}

void machine::after_fork_in_child() noexcept {
  // The parent's sockets must not live on here: its peers would take it for alive
  // when it is dead. Its objects stay as they are, without use.
  if (machine* inherited = the_machine.load(std::memory_order_acquire)) {
    inherited->engine.forget_thread();
    inherited->wire.abandon();
    abandoned = inherited;
    the_machine.store(nullptr, std::memory_order_release);
    inherited->engine.lock().unlock();
  }
  lifecycle.unlock();
}

void machine::at_exit() noexcept {
  const std::lock_guard held(lifecycle);
  machine* existing = the_machine.load(std::memory_order_acquire);
  if (existing == nullptr) return;
  existing->engine.stop();
  const std::lock_guard quiet(existing->engine.lock());
  existing->wire.close();
}

int machine::attach() {
  const std::lock_guard held(lifecycle);
  if (attached_ == 0) {
    const std::lock_guard quiet(engine.lock());
    if (const int error = wire.open()) return error;
    if (const int error = engine.start()) {
      wire.close();
      return error;
    }
  }
  ++attached_;
  return 0;
}

void machine::detach() noexcept {
  const std::lock_guard held(lifecycle);
  if (--attached_ != 0) return;
  engine.stop();
  const std::lock_guard quiet(engine.lock());
  wire.close();
}

void machine::stop_listening(const async_event_queue& events) noexcept {
  std::erase_if(listeners_, [&](const listener& each) { return each.events == &events; });
}

void machine::announce(unsigned device, const ibv_async_event& event) {
  for (const listener& each : listeners_)
    if (each.device == device) each.events->push(event);
}

}  // namespace softverbs
