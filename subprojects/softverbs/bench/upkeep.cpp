// SPDX-License-Identifier: Apache-2.0
// The cost of a connection, apart from time on the data path.
#include "fabric.hpp"
#include "measurement.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <deque>
#include <thread>

namespace bench {
namespace {

constexpr unsigned pairs = 8000;

/// Connects each queue pair to its neighbour.
void build(std::deque<queue_pair>& into, const device& on, completion_queue& completions) {
  for (unsigned number = 0; number < pairs; ++number) into.emplace_back(on, completions);
  for (unsigned number = 0; number < pairs; number += 2) {
    into[number].connect(into[number + 1].here());
    into[number + 1].connect(into[number].here());
  }
}

/// The resident memory of this process in bytes, shared memory included.
double resident() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  check(file != nullptr, "/proc/self/statm");
  unsigned long total = 0;
  unsigned long pages = 0;
  check(std::fscanf(file, "%lu %lu", &total, &pages) == 2, "/proc/self/statm");
  std::fclose(file);
  return static_cast<double>(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// Measures the memory of queue pairs whose queues have room for one request with one element.
void memory() {
  device here(small);
  completion_queue completions(here, 16);
  std::deque<queue_pair> all;
  const double before = resident();
  build(all, here, completions);
  print("memory", (resident() - before) / pairs);
}

double time_to_destroy(std::deque<queue_pair>& all) {
  const seconds start = now();
  for (queue_pair& each : all) each.destroy();
  return (now() - start).count() / pairs;
}

/// Measures the time to destroy idle queue pairs, and then queue pairs that have just posted a
/// request whose completion was not polled.
void destroying() {
  device here(small);
  completion_queue completions(here, 2 * pairs);
  std::deque<queue_pair> idle;
  build(idle, here, completions);
  print("destroy_idle", time_to_destroy(idle));
  std::deque<queue_pair> active;
  build(active, here, completions);
  for (unsigned number = 0; number < pairs; ++number)
    active[number].write(here.piece(0, small), active[number ^ 1U].here());
  print("destroy_active", time_to_destroy(active));
}

double processor_time() {
  rusage used{};
  check(::getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return of(used.ru_utime) + of(used.ru_stime);
}

/// Measures the share of a processor that an idle program with connections uses.
void idle() {
  device here(small);
  completion_queue completions(here, 2 * pairs);
  std::deque<queue_pair> all;
  build(all, here, completions);
  all[0].write(here.piece(0, small), all[1].here());
  completions.wait();
  // The device's thread may check for some time whether the program polls.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double before = processor_time();
  const seconds start = now();
  std::this_thread::sleep_for(2 * duration);
  print("idle", (processor_time() - before) / (now() - start).count());
}

}  // namespace

const std::vector<measurement> of_upkeep{
    {"memory", memory},
    {"destroy", destroying},
    {"idle", idle},
};

}  // namespace bench
