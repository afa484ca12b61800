// SPDX-License-Identifier: Apache-2.0
/// \file
/// One-sided operations: a client reads and writes the fields of a structure, and the elements of
/// an array, in a server's memory. The server's processor is not involved until immediate data
/// notifies it of a change.

#include <verbspp/verbspp.hpp>

#include <array>
#include <cstdint>
#include <iostream>
#include <span>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;

constexpr std::size_t entries = 8;

/// The memory that the server shares. Both ends have to use the same layout.
struct board {
  std::uint64_t version;
  std::uint64_t visitors;
  std::array<std::uint32_t, 4> reserved;
  std::uint64_t scores[entries];
};

constexpr access_flags shown = access::local_write | access::remote_read | access::remote_write;
using connected = connected_queue_pair<transport::rc>;

/// Waits for the completion of the only request in flight.
transport_result<completed_work> finish(const completion_queue& queue) {
  std::array<work_completion, 1> slots;
  for (;;) {
    VERBSPP_TRY(arrived, queue.poll(slots));
    if (arrived.empty()) continue;
    VERBSPP_TRY(work, arrived.front().get());
    return work;
  }
}

transport_result<void> visit(connected& client, const completion_queue& queue,
                             const protection_domain& domain,
                             const remote_memory<shown & access::all_remote>& memory) {
  // Treats the peer's memory as an object, whose fields and array elements can be addressed. `at`
  // checks that the memory is large enough, and `element` checks the index.
  VERBSPP_TRY(remote, (remote_object < board, shown & access::all_remote > ::at(memory)));
  const auto scores = remote.field(&board::scores);
  VERBSPP_TRY(third, scores.element(3));

  // A read needs registered local memory for the data.
  VERBSPP_TRY(local, registered_buffer<>::allocate(domain, sizeof(board)));
  VERBSPP_TRY(into, local.scatter());
  VERBSPP_TRYV(client.post_read({.elements = into, .remote = remote}));
  VERBSPP_TRYV(finish(queue));
  const auto* const seen = reinterpret_cast<const board*>(local.data());
  std::cout << "read version " << seen->version << ", score 3 is " << seen->scores[3] << '\n';

  // A few bytes can be copied into the request (inline): they need no registration, and may be
  // destroyed as soon as the request is posted.
  const std::uint64_t better = seen->scores[3] + 58;
  VERBSPP_TRYV(client.post_write({.elements = inline_payload(better), .remote = third}));
  VERBSPP_TRYV(finish(queue));

  // With immediate data, the last of several writes notifies the server of the entry that changed.
  const std::uint64_t version = seen->version + 1;
  VERBSPP_TRYV(client.post_write({.elements = inline_payload(version),
                                  .remote = remote.field(&board::version),
                                  .immediate = immediate_data(3)}));
  VERBSPP_TRYV(finish(queue));
  return success();
}

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(server_queue, completion_queue::create(context, 16));
  VERBSPP_TRY(client_queue, completion_queue::create(context, 16));
  const auto builder = build_queue_pair<transport::rc>().protection_domain(domain).max_inline_data(
      sizeof(std::uint64_t));
  VERBSPP_TRY(server_end, builder.access(shown).completion_queue(server_queue).build());
  VERBSPP_TRY(client_end,
              builder.access(access::local_write).completion_queue(client_queue).build());

  board content{.version = 1, .visitors = 0, .reserved = {}, .scores = {}};
  content.scores[3] = 42;
  VERBSPP_TRY(region, register_memory<shown>(domain, std::span(&content, 1)));
  VERBSPP_TRY(memory, region.remote());

  // A write with immediate data consumes a receive, which needs no memory, because no data is
  // placed in it.
  VERBSPP_TRYV(server_end.post_receive({}));
  const endpoint server_address = server_end.endpoint();
  const endpoint client_address = client_end.endpoint();
  VERBSPP_TRY(server, std::move(server_end).handshake(client_address));
  VERBSPP_TRY(client, std::move(client_end).handshake(server_address));

  VERBSPP_TRYV(visit(client, client_queue, domain, memory));

  VERBSPP_TRY(told, finish(server_queue));
  const std::uint32_t changed = told.immediate().value_or(immediate_data(0)).value();
  std::cout << "notified that score " << changed << " changed: it is " << content.scores[changed]
            << " in version " << content.version << '\n';
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
