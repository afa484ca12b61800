// SPDX-License-Identifier: Apache-2.0
/// \file
/// A connection fails while requests are in flight. The sample distinguishes the request that
/// failed from those that were flushed after it, and collects all completions. Over another
/// connection, it repeats the requests that did not succeed.

#include <verbspp/verbspp.hpp>

#include <array>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;

constexpr std::size_t parts = 4;
constexpr std::size_t part_size = 16;
constexpr access_flags target_rights = access::local_write | access::remote_write;
using connected = connected_queue_pair<transport::rc>;
using broken = queue_pair<transport::rc, queue_pair_state::error>;

/// A connection to the target. Both ends are in this process, so that the sample is self-contained.
struct way {
  connected near;
  connected far;

  static result<way> open(const protection_domain& domain, const completion_queue& queue) {
    const auto builder =
        build_queue_pair<transport::rc>().protection_domain(domain).completion_queue(queue).access(
            target_rights);
    VERBSPP_TRY(near, builder.build());
    VERBSPP_TRY(far, builder.build());
    const endpoint near_address = near.endpoint();
    const endpoint far_address = far.endpoint();
    VERBSPP_TRY(connected_near, std::move(near).handshake(far_address));
    VERBSPP_TRY(connected_far, std::move(far).handshake(near_address));
    return way{std::move(connected_near), std::move(connected_far)};
  }
};

/// The outcome of all parts.
struct outcome_of_parts {
  std::array<bool, parts> done{};
  std::optional<work_error> root;  ///< the failure that caused the flushes
  std::size_t flushed = 0;         ///< the number of requests that were flushed
};

/// Takes the completions of all parts. When a queue pair fails, every request in flight completes.
result<outcome_of_parts> collect(const completion_queue& queue) {
  outcome_of_parts outcome;
  std::array<work_completion, parts> slots;
  for (std::size_t taken = 0; taken < parts;) {
    VERBSPP_TRY(arrived, queue.poll(slots));
    taken += arrived.size();
    for (const work_completion& completion : arrived) {
      const auto work = completion.get();
      if (work.has_value())
        outcome.done[completion.wr_id()] = true;
      else if (work.error().error_class() == work_error_class::flushed)
        ++outcome.flushed;
      else
        outcome.root = work.error();
    }
  }
  return outcome;
}

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(queue, completion_queue::create(context, 4 * parts));
  std::array<char, parts * part_size> source{
      "all parts arrive, whatever happens to the first path"};
  std::array<char, parts * part_size> target{};
  VERBSPP_TRY(from, register_memory(domain, source));
  VERBSPP_TRY(to, register_memory<target_rights>(domain, target));
  VERBSPP_TRY(memory, to.remote());
  VERBSPP_TRY(first, way::open(domain, queue));
  VERBSPP_TRY(second, way::open(domain, queue));

  // The third part is written with an rkey that does not exist at the peer.
  const remote_memory<access::remote_write> stale(memory.address(), memory.length(),
                                                  remote_key(~memory.rkey().value()));
  for (std::size_t part = 0; part < parts; ++part) {
    VERBSPP_TRY(element, from.gather(part * part_size, part_size));
    const remote_memory<access::remote_write> all = memory;
    VERBSPP_TRY(place, (part == 2 ? stale : all).slice(part * part_size, part_size));
    VERBSPP_TRYV(first.near.post_write({.elements = element, .remote = place}, {.id = part}));
  }
  VERBSPP_TRY(outcome, collect(queue));
  if (!outcome.root)
    return error(error_kind::mismatch, "failover", "the first path was expected to fail");
  std::cout << "failed: " << *outcome.root << "\nflushed after it: " << outcome.flushed << '\n';

  // The device has moved the near queue pair to ERR; `assume_state` adjusts its type to this state.
  // The queue pair could be reset and connected again (see 03_state_machine), but is abandoned
  // here. The far queue pair has refused the access, so the device moves it to ERR as well;
  // `to_error` works before and after that.
  const broken near = std::move(first.near).assume_state<queue_pair_state::error>();
  VERBSPP_TRY(far, std::move(first.far).to_error());
  VERBSPP_TRY(state, near.query_state());
  std::cout << "the first path is in " << to_string(state) << '\n';

  // The remaining parts are written over the other connection, with the valid rkey.
  for (std::size_t part = 0; part < parts; ++part) {
    if (outcome.done[part]) continue;
    VERBSPP_TRY(element, from.gather(part * part_size, part_size));
    VERBSPP_TRY(place, memory.slice(part * part_size, part_size));
    VERBSPP_TRYV(second.near.post_write({.elements = element, .remote = place}, {.id = part}));
    for (std::array<work_completion, 1> slots;;) {
      VERBSPP_TRY(arrived, queue.poll(slots));
      if (arrived.empty()) continue;
      VERBSPP_TRYV(arrived.front().get());
      break;
    }
  }
  std::cout << "arrived: " << target.data() << '\n';
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
