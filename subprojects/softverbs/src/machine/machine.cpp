// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.hpp"

#include "base/as_a_device.hpp"
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

/// The machine of the process. Never freed, because threads of the program may call verbs while the
/// process exits.
std::atomic<machine*> the_machine{nullptr};

/// The maximum time to wait for direct accesses to end. It is limited because a process that
/// accesses the memory may have been stopped, or, at exit, a thread of this process may be blocked.
constexpr nanoseconds longest_wait = 5'000'000'000;

/// Most requests take less time than this, so an announcement that lasts longer may be false. The
/// limit is not a number of polls, because other processes may run between two polls on a busy
/// machine.
constexpr nanoseconds time_before_doubt = 1'000'000;

/// The machine that a forked child inherited. It is kept, because open contexts refer to it.
machine* abandoned = nullptr;

/// Held while devices are opened or closed, and during fork and exit. Must be taken before an
/// engine's lock.
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
  // The child must close the parent's sockets. Otherwise, peers would consider the parent alive
  // after it has died. The parent's objects remain in the child, but are not used.
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
  // Other threads still run, and a peer that sees this process disconnect assumes that the process
  // no longer accesses the peer's memory. Therefore, this function waits for the direct accesses of
  // the other threads before it closes the connections. The wait is limited, because a thread may
  // be blocked forever. In that case, the kernel closes the connections after all threads have
  // ended. An access of this thread is not waited for: if there is one, it was interrupted by a
  // signal handler that called exit.
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
  // Without the mark, peers don't trust the tables, and send packets. Under Valgrind, no mark is
  // set, because Memcheck would not notice what peers write to this process's memory.
  if (!is_emulated() && ::getrandom(&mark_, sizeof(mark_), GRND_NONBLOCK) == sizeof(mark_))
    tables->mark = mark_;
  tables->address_of_mark = reinterpret_cast<std::uintptr_t>(&mark_);
  // If this fails, the program can't allocate device memory.
  if (device_memory.open() == 0)
    tables->device_memory = reinterpret_cast<std::uintptr_t>(device_memory.start());
  wire.publish(table_memory_.descriptor(), device_memory.descriptor());
  // If Yama allows only ancestors of this process to access its memory, peers need permission.
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
  // A queue pair that only receives for XRC has no domain, nor does a region that doesn't exist.
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
      // A process that has died uses nothing. `gone` is set when this process notices that the
      // connection from the other process has ended.
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
