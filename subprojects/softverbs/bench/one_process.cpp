// SPDX-License-Identifier: Apache-2.0
#include "fabric.hpp"
#include "measurement.hpp"

#include <array>
#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

namespace bench {
namespace {

/// Two connected queue pairs.
struct loop {
  loop(const device& on, completion_queue& completions, std::uint32_t window)
      : pair(on, completions, window), target(on, completions) {
    pair.connect(target.here());
    target.connect(pair.here());
    there = target.here();
  }
  queue_pair pair;
  queue_pair target;
  address there{};
};

/// Writes through the connections of `loops` in turn for `duration`, with a total of `window`
/// requests in flight. Returns the number of writes per second.
double rate(const ibv_sge& piece, completion_queue& completions, std::deque<loop>& loops,
            unsigned window) {
  std::array<ibv_wc, 16> done;
  // The order of the loops, in a ring: a loop whose write has completed goes to the end.
  std::vector<std::size_t> turns(window);
  for (std::size_t at = 0; at < window; ++at) turns[at] = at % loops.size();
  std::size_t next = 0;
  std::size_t end = 0;
  unsigned outstanding = 0;
  double written = 0;
  const auto take = [&] {
    const int count = completions.poll(done.data(), static_cast<int>(done.size()));
    for (int at = 0; at < count; ++at) {
      turns[end] = done[static_cast<std::size_t>(at)].wr_id;
      end = end + 1 == window ? 0 : end + 1;
    }
    outstanding -= static_cast<unsigned>(count);
    written += count;
  };
  const seconds start = now();
  for (unsigned turn = 0; turn % 16 != 0 || now() < start + duration; ++turn) {
    for (; outstanding < window; ++outstanding) {
      loop& chosen = loops[turns[next]];
      chosen.pair.write(piece, chosen.there, IBV_SEND_SIGNALED, turns[next]);
      next = next + 1 == window ? 0 : next + 1;
    }
    take();
  }
  const double result = written / (now() - start).count();
  while (outstanding > 0) take();
  return result;
}

void post_to_completion() {
  device here(small);
  completion_queue completions(here, 16);
  loop only(here, completions, 16);
  samples times;
  for (const seconds end = now() + duration; now() < end;) {
    const seconds start = now();
    only.pair.write(here.piece(0, small), only.there);
    completions.wait();
    times.add(now() - start);
  }
  times.print("post_to_completion");
}

void window_of_16() {
  device here(small);
  completion_queue completions(here, 32);
  std::deque<loop> loops;
  loops.emplace_back(here, completions, 16);
  print("window_16", rate(here.piece(0, small), completions, loops, 16));
}

/// Each thread has its own completion queue, connection and memory. Two threads that write to the
/// same cache line would measure how fast it moves from one processor to the other.
void threads() {
  constexpr unsigned most = 8;
  constexpr std::size_t apart = 4096;
  device here(most * apart);
  for (const unsigned count : {1U, 2U, 4U, most}) {
    struct own {
      own(const device& on, unsigned number)
          : piece(on.piece(number * apart, small)), completions(on, 32) {
        loops.emplace_back(on, completions, 16);
      }
      ibv_sge piece;
      completion_queue completions;
      std::deque<loop> loops;
      double rate = 0;
    };
    std::deque<own> owners;
    for (unsigned number = 0; number < count; ++number) owners.emplace_back(here, number);
    std::deque<std::thread> all;
    std::atomic<unsigned> ready{0};
    for (own& each : owners)
      all.emplace_back([&] {
        for (++ready; ready < count;) std::this_thread::yield();
        each.rate = rate(each.piece, each.completions, each.loops, 16);
      });
    double sum = 0;
    for (std::thread& each : all) each.join();
    for (const own& each : owners) sum += each.rate;
    print(("threads_" + std::to_string(count)).c_str(), sum);
  }
}

/// Writes in turn through as many connections as the device has queue pairs for. For comparison,
/// also measures one connection with the same number of requests in flight.
void many() {
  constexpr unsigned most = 8191;
  device here(small);
  completion_queue completions(here, 2 * most);
  std::deque<loop> loops;
  loops.emplace_back(here, completions, most);
  print("deep_window", rate(here.piece(0, small), completions, loops, most));
  loops.clear();
  for (unsigned number = 0; number < most; ++number) loops.emplace_back(here, completions, 1);
  print("many_pairs", rate(here.piece(0, small), completions, loops, most));
}

}  // namespace

const std::vector<measurement> of_one_process{
    {"post_to_completion", post_to_completion},
    {"window_16", window_of_16},
    {"threads", threads},
    {"many_pairs", many},
};

}  // namespace bench
