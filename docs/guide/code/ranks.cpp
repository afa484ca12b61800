// SPDX-License-Identifier: Apache-2.0
/// \file
/// The code of docs/guide/cookbook.md about ranks. It is compiled, not run.

#include "routine.hpp"
#include <verbspp/channel.hpp>
#include <verbspp/coroutine.hpp>
#include <verbspp/ranks.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string_view>
#include <utility>

namespace guide {

using namespace verbspp;
using namespace std::chrono_literals;

/// Each rank writes its number into the memory of its right neighbour.
group_result<void> run_rank(std::string_view device_name) {
  constexpr access_flags rights = access::local_write | access::remote_write;
  VERBSPP_TRY(device, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  VERBSPP_TRY(launched, find_bootstrap(30s));
  VERBSPP_TRY(all, world::join(std::move(launched), domain.build_channel(), 30s));

  VERBSPP_TRY(buffer, (registered_buffer<rights, std::uint64_t>::allocate(domain, 2)));
  VERBSPP_TRY(memory, buffer.remote());
  VERBSPP_TRY(memories, all.exchange(memory, 30s));

  const std::uint32_t right = (all.rank() + 1) % all.size();
  buffer[0] = all.rank();
  VERBSPP_TRY(from, buffer.gather(0, 1));
  VERBSPP_TRY(to, memories[right].slice(8, 8));
  VERBSPP_TRYV(all.peers()[right].write({.elements = from, .remote = to}, 5s));
  VERBSPP_TRYV(all.barrier(5s));
  std::cout << "rank " << all.rank() << " was written to by " << buffer[1] << '\n';

  VERBSPP_TRY(sum, all.all_reduce(buffer[1], std::plus<>(), 5s));
  if (all.rank() == 0) std::cout << "the sum is " << sum << '\n';
  VERBSPP_TRYV(all.barrier(5s));
  return success();
}

/// Waits until all ranks have arrived, while the loop serves other coroutines.
routine wait_for_all(event_loop& loop, world& all) {
  VERBSPP_CO_TRY(session, all.start_barrier(5s));
  VERBSPP_CO_TRYV(co_await loop.async_run(std::move(session)));
  co_return success();
}

/// Sends a different part of a buffer to each member of a group.
group_result<void> scatter_parts(group& peers, const registered_buffer<>& buffer) {
  constexpr std::size_t length = 4096;
  VERBSPP_TRYV(peers.scatter(
      peers.connected(),
      [&](std::uint32_t peer) -> result<send_operation> {
        VERBSPP_TRY(part, buffer.gather(peer * length, length));
        return send_operation{.elements = part};
      },
      5s));
  return success();
}

}  // namespace guide
