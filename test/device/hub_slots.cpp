// SPDX-License-Identifier: Apache-2.0
// Messages in the slots that a program passes to `channel_hub::wait`.
#include "channels.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr std::uint32_t messages_of_each = 20;

/// Sends messages over two channels in turn, whose immediate data are 0, 1, 2, ... for each
/// channel. Every seventh is a write, which has no bytes for the hub's pool.
void send_all(std::array<channel_pair, 2>& all, buffer<>& from, buffer<>& target) {
  for (std::uint32_t i = 0; i < messages_of_each; ++i)
    for (channel_pair& each : all)
      if (i % 7 == 6)
        must(each.right.write({.elements = from.gather(0, 8),
                               .remote = target.remote(),
                               .immediate = immediate_data(i)}));
      else
        must(each.right.send({.elements = from.gather(0, i), .immediate = immediate_data(i)}));
}

/// Waits for all of these messages, and checks their order and their lengths.
void receive_all(const channel_hub& hub, const std::array<channel_pair, 2>& all,
                 std::span<arrival> slots) {
  std::array<std::uint32_t, 2> next{};
  while (next[0] + next[1] < 2 * messages_of_each) {
    for (arrival& each : must(hub.wait(slots, patience))) {
      std::uint32_t& number = next.at(each.source == all[0].left.id() ? 0 : 1);
      REQUIRE(each.message);
      CHECK(each.message.source() == each.source);
      CHECK(each.message.immediate() == immediate_data(number));
      CHECK(each.message.size() == (number % 7 == 6 ? 0 : number));
      ++number;
    }
  }
  CHECK(next[0] == messages_of_each);
  CHECK(next[1] == messages_of_each);
}

}  // namespace

TEST_CASE("the messages of each channel of a hub arrive in order for any number of slots") {
  const std::size_t count = GENERATE(1, 4, 32, 33, 40);
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 128, 64));
  const auto hub = supported(channel_hub::create(bed.domain, pool, {.channels = 2, .receives = 64}),
                             shared_receive_queues);
  const auto connect = [&] {
    const auto small = bed.domain.build_channel().max_send_work_requests(8);
    auto served = must(small.hub(hub).build());
    return connect_channels(std::move(served), must(small.build()));
  };
  std::array<channel_pair, 2> all{connect(), connect()};
  buffer<> from(bed.domain, 64);
  buffer<> target(bed.domain, 64);
  std::vector<arrival> slots(count);
  for (int round = 0; round < 3; ++round) {
    send_all(all, from, target);
    receive_all(hub, all, slots);
  }
}
