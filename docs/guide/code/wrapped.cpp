// SPDX-License-Identifier: Apache-2.0
/// \file
/// The C++ side of docs/guide/from-libibverbs.md. It is compiled, not run.

#include <verbspp/channel.hpp>
#include <verbspp/verbspp.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <utility>

namespace guide::wrapped {

using namespace verbspp;

result<context> open_first() {
  VERBSPP_TRY(devices, device_list::query());
  if (devices.empty()) return error(error_kind::not_found, "open the first device", nullptr);
  return devices[0].open();
}

constexpr access_flags shown = access::local_write | access::remote_read;

result<registered_buffer<shown>> register_buffer(const protection_domain& domain) {
  return registered_buffer<shown>::allocate(domain, 4096);
}

using prepared_pair = prepared_queue_pair<transport::rc>;
using connected_pair = connected_queue_pair<transport::rc>;

result<prepared_pair> create(const protection_domain& domain, const completion_queue& queue) {
  return build_queue_pair<transport::rc>()
      .protection_domain(domain)
      .completion_queue(queue)
      .access(shown)
      .build();
}

result<connected_pair> connect(prepared_pair pair, const endpoint& remote) {
  return std::move(pair).handshake(remote);
}

transport_result<void> read(connected_pair& pair, registered_buffer<shown>& to,
                            const remote_memory<access::remote_read>& from) {
  VERBSPP_TRY(into, to.scatter());
  VERBSPP_TRYV(pair.post_read({.elements = into, .remote = from}, {.id = 1}));
  return success();
}

transport_result<completed_work> wait(const completion_queue& queue) {
  std::array<work_completion, 1> slots;
  for (;;) {
    VERBSPP_TRY(arrived, queue.poll(slots));
    if (arrived.empty()) continue;
    VERBSPP_TRY(work, arrived.front().get());
    return work;
  }
}

/// A channel does the work of the last two functions in one call.
transport_result<void> read(channel& peer, registered_buffer<shown>& to,
                            const remote_memory<access::remote_read>& from) {
  VERBSPP_TRYV(peer.read(to, {.remote = from}));
  return success();
}

/// The library works with objects that C code has created, and C code with objects of the library.
result<context> adopt(ibv_context* opened_by_c) {
  return context::from_native(opened_by_c, ownership::borrowed);
}
int query(const context& device, ibv_device_attr& attributes) {
  return ibv_query_device(device.native_handle(), &attributes);
}

}  // namespace guide::wrapped
