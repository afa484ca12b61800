// SPDX-License-Identifier: Apache-2.0
/// \file
/// Active UD queue pairs, helpers that send and receive datagrams, and multicast groups.
#pragma once

#include "transports.hpp"

#include <optional>
#include <span>
#include <vector>

namespace verbspp::test {

using prepared_datagram = prepared_queue_pair<transport::ud>;

inline constexpr std::size_t header = datagram_header_size;

[[nodiscard]] inline connected_datagram active_of(const testbed& bed,
                                                  const completion_queue& queue) {
  return must(prepared_of<transport::ud>(bed, queue).activate());
}
[[nodiscard]] inline connected_datagram left_of(const testbed& bed) {
  return active_of(bed, bed.left_queue);
}
[[nodiscard]] inline connected_datagram right_of(const testbed& bed) {
  return active_of(bed, bed.right_queue);
}

/// A fixture with two ends, and an address handle that leads from the left end to the right one.
struct two_datagram_ends {
  const testbed bed{};
  connected_datagram left = left_of(bed);
  connected_datagram right = right_of(bed);
  const address_handle way = must(left.address_of(right.endpoint()));
};

/// Memory for one datagram, posted as a receive whose `wr_id` is `id`.
class datagram_inbox {
 public:
  datagram_inbox(const testbed& bed, connected_datagram& owner, std::uint64_t id, std::size_t size)
      : memory_(bed.domain, std::vector<std::byte>(header + size, std::byte{0xee})),
        queue_(owner.receive_completion_queue()),
        id_(id) {
    must(owner.post_receive({.elements = memory_.scatter()}, {.id = id}));
  }
  /// Waits for the datagram, and returns it.
  received_datagram take(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
    const work_completion completion = take_one(queue_, line, file);
    if (completion.wr_id() != id_) throw failure(file, line, "another receive completed");
    return must(received_datagram::from(completion, memory_.content()), line, file);
  }
  [[nodiscard]] std::span<std::byte> memory() { return memory_.content(); }

 private:
  buffer<> memory_;
  completion_queue queue_;
  std::uint64_t id_;
};

[[nodiscard]] inline std::vector<std::byte> copy_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

/// Sends `payload`, and polls the completion of the send.
inline void send(const testbed& bed, connected_datagram& from, const datagram_destination& to,
                 const std::vector<std::byte>& payload,
                 std::optional<immediate_data> immediate = {}, int line = __builtin_LINE(),
                 const char* file = __builtin_FILE()) {
  buffer<> outbox(bed.domain, payload);
  const gather_element element = outbox.gather();
  must(from.post_send({.elements = element, .to = to, .immediate = immediate}, {.id = 77}), line,
       file);
  take_success(from.send_completion_queue(), 77, line, file);
}

/// A multicast group for these tests. If the port's address is IPv4-mapped, the group is an IPv4
/// group, whose GID is IPv4-mapped as well.
struct multicast_group {
  gid address;
  lid multicast_lid = 0;

  static multicast_group of(const testbed& bed, std::uint8_t number) {
    const endpoint local = prepared_of<transport::ud>(bed, bed.left_queue).endpoint();
    if (bed.is_ethernet() && local.address.is_ipv4_mapped())
      return {gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 77, 3, number}}};
    return {gid{{0xff, 0x12, 0x40, 0x1b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77, 3, number}},
            bed.is_ethernet() ? lid(0) : must(lid::from(0xc000 + number))};
  }
};

}  // namespace verbspp::test
