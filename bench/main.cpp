// SPDX-License-Identifier: Apache-2.0
// Runs the loops; compare.py parses the output, and runs callgrind.
//
//     loops list                   the names of the loops
//     loops count BATCHES          runs each loop with BATCHES batches, then with twice as many
//     loops time ROUNDS BATCHES    runs ROUNDS rounds; in each, all loops with BATCHES batches
#include "allocations.hpp"
#include "loop.hpp"
#include "loops.h"
#include "null_device.h"
#include "usual_loops.hpp"
#include "wrapped.hpp"
#include <verbspp/verbspp.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string_view>
#include <vector>

namespace {

using namespace verbspp;

const volatile std::uint32_t length_at_run_time = message_size;

transport_result<wrapped_ends> open_ends(std::array<char, message_size>& outbox,
                                         std::array<char, message_size>& inbox) {
  VERBSPP_TRY(context, open_device("null0"));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(queue, completion_queue::create(context, 2 * batch));
  VERBSPP_TRY(outgoing, register_memory(domain, outbox));
  VERBSPP_TRY(incoming, register_memory<access::local_write>(domain, inbox));
  VERBSPP_TRY(prepared, build_queue_pair<transport::rc>()
                            .protection_domain(domain)
                            .completion_queue(queue)
                            .access(access::local_write)
                            .build());
  const endpoint own = prepared.endpoint();
  VERBSPP_TRY(connected, std::move(prepared).handshake(own));
  VERBSPP_TRY(extended_queue, wrapped_ends::extended_queue_type::create(context, 2 * batch));
  VERBSPP_TRY(other_prepared, build_queue_pair<transport::rc>()
                                  .protection_domain(domain)
                                  .completion_queue(extended_queue)
                                  .access(access::local_write)
                                  .extended_posting()
                                  .build());
  const endpoint other = other_prepared.endpoint();
  VERBSPP_TRY(extended_pair, std::move(other_prepared).handshake(other));
  VERBSPP_TRY(prepared_channel, domain.build_channel().max_send_work_requests(4 * batch).build());
  const endpoint third = prepared_channel.endpoint();
  VERBSPP_TRY(channel, std::move(prepared_channel).handshake(third));
  VERBSPP_TRY(prepared_receiver,
              domain.build_channel().max_receive_work_requests(2 * batch).build());
  const endpoint fourth = prepared_receiver.endpoint();
  VERBSPP_TRY(receiver, std::move(prepared_receiver).handshake(fourth));
  VERBSPP_TRY(pool, message_pool::create(domain, 3 * batch, message_size));
  VERBSPP_TRY(filled, inbox::open(receiver, pool, {.depth = 2 * batch, .refill = batch}));
  VERBSPP_TRY(owned, registered_buffer<>::allocate(domain, message_size));
  VERBSPP_TRY(places, registered_buffer<>::allocate(domain, 2 * batch * message_size));
  const remote_memory<access::remote_write> remote(
      reinterpret_cast<std::uintptr_t>(incoming.bytes().data()), incoming.length(), remote_key(7U));
  return wrapped_ends{std::move(connected),
                      queue,
                      std::move(extended_pair),
                      extended_queue,
                      std::move(outgoing),
                      std::move(incoming),
                      remote,
                      &length_at_run_time,
                      std::move(channel),
                      std::move(receiver),
                      std::move(filled),
                      std::move(owned),
                      std::move(places)};
}

/// The state that the loops in C modify.
struct raw_state {
  ibv_mr* owned;
  std::array<std::uint32_t, 2 * batch> free_places{};
  std::uint32_t free_count = 0;
};

raw_ends raw_ends_of(const wrapped_ends& ends, raw_state& state) {
  return {.qp = ends.queue_pair.native_handle(),
          .cq = ends.queue.native_handle(),
          .extended_qp = ibv_qp_to_qp_ex(ends.extended_pair.native_handle()),
          .extended_cq = reinterpret_cast<ibv_cq_ex*>(ends.extended_queue.native_handle()),
          .outgoing = ends.outgoing.native_handle(),
          .incoming = ends.incoming.native_handle(),
          .remote_address = ends.remote.address(),
          .remote_length = ends.remote.length(),
          .rkey = ends.remote.rkey().value(),
          .owned = &state.owned,
          .places = ends.places.native_handle(),
          .free_places = state.free_places.data(),
          .free_count = &state.free_count,
          .length = ends.length};
}

std::vector<loop> all_loops(wrapped_ends& wrapped, const raw_ends& raw) {
  const auto bind = [](auto function, auto& ends) {
    return [function, &ends](std::uint64_t operations) { return function(ends, operations); };
  };
  const auto in_c = [&raw](auto function) {
    return [function, &raw](std::uint64_t operations) { return function(&raw, operations); };
  };
  return {
      {"raw_write", in_c(loop_raw_write)},
      {"verbspp_write", bind(loop_verbspp_write, wrapped)},
      {"prebuilt_write", in_c(loop_prebuilt_write)},
      {"planted_write", bind(loop_planted_write, wrapped)},
      {"raw_send", in_c(loop_raw_send)},
      {"verbspp_send", bind(loop_verbspp_send, wrapped)},
      {"prebuilt_send", in_c(loop_prebuilt_send)},
      {"raw_receive", in_c(loop_raw_receive)},
      {"verbspp_receive", bind(loop_verbspp_receive, wrapped)},
      {"prebuilt_receive", in_c(loop_prebuilt_receive)},
      {"raw_list", in_c(loop_raw_list)},
      {"verbspp_list", bind(loop_verbspp_list, wrapped)},
      {"prebuilt_list", in_c(loop_prebuilt_list)},
      {"raw_extended", in_c(loop_raw_extended)},
      {"verbspp_extended", bind(loop_verbspp_extended, wrapped)},
      {"raw_checked", in_c(loop_raw_checked)},
      {"verbspp_checked", bind(loop_verbspp_checked, wrapped)},
      {"raw_stream", in_c(loop_raw_stream)},
      {"verbspp_stream", bind(loop_verbspp_stream, wrapped)},
      {"verbspp_pending", bind(loop_verbspp_pending, wrapped)},
      {"verbspp_blocking", bind(loop_verbspp_blocking, wrapped)},
      {"verbspp_limited", bind(loop_verbspp_limited, wrapped)},
      {"verbspp_scope", bind(loop_verbspp_scope, wrapped)},
      {"verbspp_doorbell", bind(loop_verbspp_doorbell, wrapped)},
      {"raw_unsignaled", in_c(loop_raw_unsignaled)},
      {"verbspp_unsignaled", bind(loop_verbspp_unsignaled, wrapped)},
      {"raw_owned", in_c(loop_raw_owned)},
      {"verbspp_owned", bind(loop_verbspp_owned, wrapped)},
      {"raw_inbox", in_c(loop_raw_inbox)},
      {"verbspp_inbox", bind(loop_verbspp_inbox, wrapped)},
  };
}

}  // namespace

/// The function that callgrind measures, found by its name.
extern "C" [[gnu::noinline]] bool measured(const loop& each, std::uint64_t operations) {
  return each.run(operations);
}

namespace {

void run(const loop& each, std::uint64_t operations) {
  if (measured(each, operations)) return;
  std::cerr << each.name << " failed\n";
  std::exit(1);
}

void count(const std::vector<loop>& loops, std::uint64_t operations) {
  for (const loop& each : loops) {
    run(each, operations);
    run(each, 2 * operations);
  }
}

/// The costs of a loop, other than instructions and time.
struct costs {
  std::uint64_t allocations = 0;
  std::uint64_t doorbells = 0;
  std::uint64_t completions = 0;
  std::uint64_t locks = 0;

  static costs now() noexcept {
    const device_counts of_device = device_counts_now();
    return {::allocations(), of_device.doorbells, of_device.completions, of_device.locks};
  }
  void add_since(const costs& before) noexcept {
    const costs after = now();
    allocations += after.allocations - before.allocations;
    doorbells += after.doorbells - before.doorbells;
    completions += after.completions - before.completions;
    locks += after.locks - before.locks;
  }
};

/// Prints, for each loop, its name and the costs per operation: nanoseconds (median), allocations,
/// doorbells, completions, and locks that a driver would take.
void time(const std::vector<loop>& loops, std::uint64_t rounds, std::uint64_t operations) {
  using clock = std::chrono::steady_clock;
  std::vector<std::vector<double>> times(loops.size());
  std::vector<costs> spent(loops.size());
  for (auto& each : times) each.reserve(rounds);
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (std::size_t turn = 0; turn < loops.size(); ++turn) {
      // Every second round runs in reverse order, so that no loop always follows the same one.
      const std::size_t index = round % 2 == 0 ? turn : loops.size() - 1 - turn;
      const costs before = costs::now();
      const auto start = clock::now();
      run(loops[index], operations);
      const std::chrono::duration<double, std::nano> took = clock::now() - start;
      spent[index].add_since(before);
      times[index].push_back(took.count() / static_cast<double>(operations));
    }
  for (std::size_t index = 0; index < loops.size(); ++index) {
    auto& sorted = times[index];
    std::ranges::sort(sorted);
    std::cout << loops[index].name << ' ' << sorted[sorted.size() / 2];
    const costs& of = spent[index];
    for (const std::uint64_t each : {of.allocations, of.doorbells, of.completions, of.locks})
      std::cout << ' ' << static_cast<double>(each) / static_cast<double>(rounds * operations);
    std::cout << '\n';
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  const auto number = [&](std::size_t index) -> std::uint64_t {
    return std::strtoull(arguments[index].data(), nullptr, 10);
  };
  std::array<char, message_size> outbox{};
  std::array<char, message_size> inbox{};
  auto ends = open_ends(outbox, inbox);
  if (!ends) {
    std::cerr << ends.error() << '\n';
    return 1;
  }
  raw_state state{.owned = ends.value().owned.native_handle()};
  for (std::uint32_t& place : state.free_places) place = state.free_count++;
  const raw_ends raw = raw_ends_of(ends.value(), state);
  auto loops = all_loops(ends.value(), raw);
  auto others = usual_loops();
  if (!others) {
    std::cerr << others.error() << '\n';
    return 1;
  }
  std::ranges::move(others.value(), std::back_inserter(loops));
  if (arguments.size() == 1 && arguments[0] == "list") {
    for (const loop& each : loops) std::cout << each.name << '\n';
  } else if (arguments.size() == 2 && arguments[0] == "count") {
    count(loops, number(1) * batch);
  } else if (arguments.size() == 3 && arguments[0] == "time" && number(1) > 0) {
    time(loops, number(1), number(2) * batch);
  } else {
    std::cerr << "usage: loops list | loops count BATCHES | loops time ROUNDS BATCHES\n";
    return 2;
  }
  return 0;
}
