// SPDX-License-Identifier: Apache-2.0
/// \file
/// Datagrams between two queue pairs: to an endpoint, back to the sender, and to a multicast group.

#include <verbspp/verbspp.hpp>

#include <array>
#include <chrono>
#include <iostream>
#include <span>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;
using datagram_queue_pair = connected_queue_pair<transport::ud>;

constexpr queue_key key = 0x11111111;
constexpr std::size_t longest = 64;
constexpr std::chrono::seconds patience{5};

/// A queue pair, and memory for one datagram to send and one to receive.
struct node {
  datagram_queue_pair queue_pair;
  waitable_completion_queue queue;
  std::span<std::byte> memory;
  memory_region<access::local_write> region;

  static result<node> create(const protection_domain& domain, std::span<std::byte> memory) {
    VERBSPP_TRY(queue, waitable_completion_queue::create(domain.context(), 16));
    VERBSPP_TRY(region, register_memory<access::local_write>(domain, memory));
    VERBSPP_TRY(prepared, build_queue_pair<transport::ud>()
                              .protection_domain(domain)
                              .completion_queue(queue)
                              .qkey(key)
                              .build());
    VERBSPP_TRY(queue_pair, std::move(prepared).activate());
    return node{std::move(queue_pair), queue, memory, std::move(region)};
  }

  /// Posts a receive. Every received datagram is preceded by 40 bytes for the header.
  result<void> expect() {
    VERBSPP_TRY(into, region.scatter(longest, datagram_header_size + longest));
    return queue_pair.post_receive({.elements = into});
  }
  transport_result<work_completion> wait() const {
    std::array<work_completion, 1> slots;
    VERBSPP_TRY(arrived, queue.wait(slots, std::chrono::steady_clock::now() + patience));
    if (!arrived.empty()) return arrived.front();
    return error(
        error_kind::timed_out, "wait for a completion",
        "lost datagrams are not reported; datagrams to an IPv4 multicast group arrive only "
        "if the network interface has joined the group as well");
  }
  transport_result<void> send(std::string_view text, const datagram_destination& to) {
    for (std::size_t i = 0; i < text.size(); ++i) memory[i] = static_cast<std::byte>(text[i]);
    VERBSPP_TRY(from, region.gather(0, text.size()));
    VERBSPP_TRYV(queue_pair.post_send({.elements = from, .to = to}));
    VERBSPP_TRY(completion, wait());
    VERBSPP_TRYV(completion.get());
    return success();
  }
  transport_result<received_datagram> receive() const {
    VERBSPP_TRY(completion, wait());
    VERBSPP_TRY(datagram, received_datagram::from(completion, memory.subspan(longest)));
    std::cout << "got \"";
    for (const std::byte each : datagram.payload()) std::cout << static_cast<char>(each);
    std::cout << "\" from queue pair " << datagram.source().value() << '\n';
    return datagram;
  }
};

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  std::array<std::byte, longest + datagram_header_size + longest> ping_memory, pong_memory;
  VERBSPP_TRY(ping, node::create(domain, ping_memory));
  VERBSPP_TRY(pong, node::create(domain, pong_memory));
  VERBSPP_TRYV(ping.expect());
  VERBSPP_TRYV(pong.expect());

  // A peer's endpoint contains its address, queue pair number and QKey, which is all that a sender
  // needs.
  const endpoint peer = pong.queue_pair.endpoint();
  VERBSPP_TRY(there, ping.queue_pair.address_of(peer));
  VERBSPP_TRYV(ping.send("ping", there.destination(peer.number, peer.qkey)));

  // A received datagram identifies its sender, so the reply needs no endpoint.
  VERBSPP_TRY(question, pong.receive());
  VERBSPP_TRY(port, context.first_active_port());
  VERBSPP_TRY(back, address_handle::create_reply(domain, port.number(), question));
  VERBSPP_TRYV(pong.send("pong", back.destination(question.source(), key)));
  VERBSPP_TRYV(ping.receive());

  // A multicast group has a GID of its own. On RoCE v2, this is the GID of an IP multicast group of
  // the same family as the port's address. The host has to join an IPv4 group as well
  // (IP_ADD_MEMBERSHIP), unless no network interface has the device's addresses, as with softverbs.
  // On InfiniBand, the group also has a LID, which the subnet manager assigns; softverbs accepts
  // any multicast LID.
  const bool is_ipv4 = peer.address.is_ipv4_mapped();
  const gid group = is_ipv4 ? gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}}
                            : gid{{0xff, 0x12, 0x40, 0x1b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}};
  const lid group_lid = peer.link_layer == link_layer::infiniband ? lid(0xc003) : lid(0);
  VERBSPP_TRYV(pong.queue_pair.join_multicast(group, group_lid));
  VERBSPP_TRYV(pong.expect());
  VERBSPP_TRY(to_all, ping.queue_pair.address_of_group(group, group_lid));
  VERBSPP_TRYV(ping.send("hello, all", to_all.destination_group(key)));
  VERBSPP_TRYV(pong.receive());
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
