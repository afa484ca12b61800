// SPDX-License-Identifier: Apache-2.0
/// \file
/// Several threads share one queue pair and one completion queue: any thread may post and poll, and
/// each completion is returned to one of them.

#include <verbspp/verbspp.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;

constexpr std::size_t threads = 4;
constexpr std::uint64_t writes_per_thread = 1000;
constexpr std::size_t word_size = sizeof(std::uint64_t);
constexpr access_flags target_rights = access::local_write | access::remote_write;

/// The objects that the threads share. The library adds no locks, because libibverbs already has
/// sufficient locks.
struct shared {
  connected_queue_pair<transport::rc> queue_pair;
  completion_queue queue;
  memory_region<> source;
  remote_memory<access::remote_write> target;
  std::atomic<std::uint64_t> completed{0};
  std::atomic<bool> failed{false};
};

/// Takes the available completions, no matter which thread posted the requests.
transport_result<void> take(shared& all) {
  std::array<work_completion, 8> slots;
  VERBSPP_TRY(arrived, all.queue.poll(slots));
  for (const work_completion& completion : arrived) VERBSPP_TRYV(completion.get());
  all.completed += arrived.size();
  return success();
}

/// The body of a thread, which writes to a word of its own.
transport_result<void> work(shared& all, std::size_t which) {
  VERBSPP_TRY(element, all.source.gather(which * word_size, word_size));
  VERBSPP_TRY(place, all.target.slice(which * word_size, word_size));
  for (std::uint64_t i = 0; i < writes_per_thread;) {
    const auto posted =
        all.queue_pair.post_write({.elements = element, .remote = place}, {.id = which});
    if (posted.has_value()) {
      ++i;
    } else if (posted.error() != error_kind::would_block) {
      return posted.error();
    }
    // Polling makes room in a full queue.
    VERBSPP_TRYV(take(all));
    if (all.failed) return success();
  }
  // The last completions are taken by the threads that are still running.
  while (all.completed < threads * writes_per_thread && !all.failed) VERBSPP_TRYV(take(all));
  return success();
}

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  // The send queue limits the number of requests in flight. The completion queue is longer, so it
  // has room for all of their completions.
  VERBSPP_TRY(queue, completion_queue::create(context, 256));
  VERBSPP_TRY(prepared, build_queue_pair<transport::rc>()
                            .protection_domain(domain)
                            .completion_queue(queue)
                            .access(target_rights)
                            .max_send_work_requests(64)
                            .build());
  const endpoint own = prepared.endpoint();
  VERBSPP_TRY(connected, std::move(prepared).handshake(own));

  const std::array<std::uint64_t, threads> source{11, 22, 33, 44};
  std::array<std::uint64_t, threads> target{};
  VERBSPP_TRY(from, register_memory(domain, source));
  VERBSPP_TRY(to, register_memory<target_rights>(domain, target));
  VERBSPP_TRY(memory, to.remote());
  shared all{.queue_pair = std::move(connected),
             .queue = queue,
             .source = std::move(from),
             .target = memory};

  std::vector<transport_result<void>> outcomes(threads, success());
  std::vector<std::thread> workers;
  for (std::size_t which = 0; which < threads; ++which)
    workers.emplace_back([&all, &outcomes, which] {
      outcomes[which] = work(all, which);
      if (outcomes[which].has_error()) all.failed = true;
    });
  for (std::thread& each : workers) each.join();
  for (const auto& each : outcomes) VERBSPP_TRYV(each);
  std::cout << all.completed << " writes of " << threads << " threads completed, and the words are";
  for (const std::uint64_t word : target) std::cout << ' ' << word;
  std::cout << '\n';
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
