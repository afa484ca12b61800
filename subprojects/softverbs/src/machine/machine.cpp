// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.hpp"

#include "base/passage.hpp"
#include "base/user_memory.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>

namespace softverbs {
namespace {

/// The process' machine. Never freed: threads of the program may still call verbs
/// while it exits.
std::atomic<machine*> the_machine{nullptr};

/// For processes that were stopped while they used what is to be taken away.
constexpr nanoseconds longest_wait = 5'000'000'000;

/// Requests mostly take less time; what takes more may be a lie. Not a number of looks: on a busy
/// machine others have their turns between two of them.
constexpr nanoseconds time_before_doubt = 1'000'000;

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

bool machine::is_current() const noexcept {
  return the_machine.load(std::memory_order_acquire) == this;
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
    passage::forget_all();
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
  // Other threads still run, and whoever hears that this process is gone believes that nothing of
  // it is written any more. One that is held up for ever must not keep the program from its end,
  // nor a signal's handler that leaves what this very thread was doing: then the kernel closes it
  // all, when there are no threads any more.
  existing->wire.part();
  const nanoseconds latest = now() + longest_wait;
  const auto give_up = [latest] {
    ::sched_yield();
    return now() > latest;
  };
  if (passage::wait_for_others(give_up)) existing->wire.close();
}

void machine::publish() noexcept {
  tables = publish_tables(table_memory_);
  if (tables == nullptr) return;
  regions.show_in(*tables);
  // Without a mark, nobody believes the rest.
  if (::getrandom(&mark_, sizeof(mark_), GRND_NONBLOCK) == sizeof(mark_)) tables->mark = mark_;
  tables->address_of_mark = reinterpret_cast<std::uintptr_t>(&mark_);
  // Without it, there is none to be allocated.
  if (device_memory.open() == 0)
    tables->device_memory = reinterpret_cast<std::uintptr_t>(device_memory.start());
  wire.publish(table_memory_.descriptor(), device_memory.descriptor());
  // Where the kernel lets only parents access a process' memory, it has to be asked.
  char scope = '0';
  if (const int file = ::open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
      file >= 0) {
    if (::read(file, &scope, 1) == 1 && scope == '1')
      ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    ::close(file);
  }
}

bool machine::may_use(const remote_process& other, const announcements::use& what) {
  const std::lock_guard held(engine.lock());
  const served* const pair = engine.find(what.pair);
  // What only receives for XRC has no domain, nor has a region that isn't there.
  return pair != nullptr && pair->domain() != 0 &&
         pair->domain() == regions.domain_of(what.region) &&
         wire.belongs_to(pair->peer(), other.process);
}

bool machine::wait_for_users(const announcements::use& of) {
  passage::wait_for_all();
  std::vector<std::shared_ptr<const remote_process>> others;
  {
    const std::lock_guard held(engine.lock());
    others = wire.connected();
  }
  const nanoseconds start = now();
  return std::ranges::all_of(others, [&](const auto& other) {
    using verdict = announcements::verdict;
    std::optional<announcements::use> believed;
    const auto judge = [&](const announcements::use& said) {
      // Whoever is dead uses nothing; the engine's thread hears of it.
      if (other->gone.load()) return verdict::give_up;
      const nanoseconds waited = now() - start;
      if (waited < time_before_doubt) {
        ::sched_yield();
        return verdict::look_again;
      }
      if (believed != said && !may_use(*other, said)) return verdict::disbelieve;
      believed = said;
      if (waited > longest_wait) return verdict::give_up;
      ::usleep(100);
      return verdict::look_again;
    };
    return announcements(other->hazards()).wait(of, judge) || other->gone.load();
  });
}

int machine::attach() {
  const std::lock_guard held(lifecycle);
  if (attached_ == 0) {
    user_memory::prepare();
    const std::lock_guard quiet(engine.lock());
    if (tables == nullptr) publish();
    if (tables == nullptr) return ENOMEM;
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
  user_memory::leave();
}

void machine::stop_listening(const device_listener& who) noexcept {
  std::erase_if(listeners_, [&](const listener& each) { return each.who == &who; });
}

void machine::announce(unsigned device, const ibv_async_event& event) {
  for (const listener& each : listeners_)
    if (each.device == device) each.who->on_device_event(event);
}

void machine::announce_repair() {
  for (const listener& each : listeners_) each.who->on_repair();
}

}  // namespace softverbs
