// SPDX-License-Identifier: Apache-2.0
/// \file
/// Multicast groups of UD queue pairs.

#include "datagrams.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Makes the host a member of an IPv4 group until this object is destroyed, in the same way as
/// `rdma_join_multicast`. Does nothing if the group has another kind of address. A RoCE v2 port
/// receives a group's datagrams only if the host is a member. A software device doesn't need this
/// membership if its addresses aren't those of the host.
class host_membership {
 public:
  host_membership(const gid& group, const gid& local) {
    if (!group.is_ipv4_mapped()) return;
    socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ip_mreq request{};
    std::memcpy(&request.imr_multiaddr, &group.bytes[12], 4);
    std::memcpy(&request.imr_interface, &local.bytes[12], 4);
    ::setsockopt(socket_, IPPROTO_IP, IP_ADD_MEMBERSHIP, &request, sizeof request);
  }
  ~host_membership() {
    if (socket_ >= 0) ::close(socket_);
  }
  host_membership(const host_membership&) = delete;
  host_membership& operator=(const host_membership&) = delete;

 private:
  int socket_ = -1;
};

}  // namespace

TEST_CASE("a queue pair can join a multicast group that it is not in and leave one that it is in") {
  const release_watch watch;
  const testbed bed;
  auto right = right_of(bed);
  const multicast_group a = multicast_group::of(bed, 1);
  const multicast_group b = multicast_group::of(bed, 2);
  if (!bed.is_ethernet())
    CHECK(failure_of(right.address_of_group(a.address)) == error_kind::invalid_input);
  const error never = failure_of(right.leave_multicast(a.address, a.multicast_lid));
  CHECK(never == error_kind::not_found);
  CHECK(never.native_errno() == 0);

  must(right.join_multicast(a.address, a.multicast_lid));
  const error twice = failure_of(right.join_multicast(a.address, a.multicast_lid));
  INFO(twice);
  CHECK(twice == error_kind::invalid_input);
  CHECK_THAT(twice.message(), Catch::Contains("already"));
  must(right.join_multicast(b.address, b.multicast_lid));
  CHECK(failure_of(right.leave_multicast(multicast_group::of(bed, 3).address, a.multicast_lid)) ==
        error_kind::not_found);
  must(right.leave_multicast(a.address, a.multicast_lid));
  CHECK(failure_of(right.leave_multicast(a.address, a.multicast_lid)) == error_kind::not_found);
  must(right.join_multicast(a.address, a.multicast_lid));
  must(right.leave_multicast(b.address, b.multicast_lid));
  must(right.leave_multicast(a.address, a.multicast_lid));
}

TEST_CASE("a queue pair that is in multicast groups can be moved and destroyed") {
  const release_watch watch;
  {
    const testbed bed;
    auto prepared = prepared_of<transport::ud>(bed, bed.right_queue);
    for (std::uint8_t number = 1; number <= 5; ++number) {
      const multicast_group each = multicast_group::of(bed, number);
      must(prepared.join_multicast(each.address, each.multicast_lid));
    }
    auto right = must(std::move(prepared).activate());
    const multicast_group one = multicast_group::of(bed, 3);
    must(right.leave_multicast(one.address, one.multicast_lid));
    auto other = right_of(bed);
    must(other.join_multicast(one.address, one.multicast_lid));
    std::swap(right, other);
    must(right.leave_multicast(one.address, one.multicast_lid));
    other = right_of(bed);  // this destroys a queue pair that is in four groups
    // The failed transition destroys this queue pair, which is also a member of a group.
    must(right.join_multicast(one.address, one.multicast_lid));
    move_to_error(right.native_handle());
    CHECK(failure_of(
              std::move(right).modify(attributes_for<transport::ud, queue_pair_state::ready_to_send,
                                                     queue_pair_state::send_queue_drained>())) ==
          error_kind::invalid_input);
  }
  CHECK(watch.failures() == 0);
}

TEST_CASE("a GID that is not a multicast address cannot be joined") {
  const testbed bed;
  auto right = right_of(bed);
  for (const gid& address : {right.endpoint().address, gid{},
                             gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 223, 0, 0, 1}},
                             gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 240, 0, 0, 1}},
                             gid{{0xfe, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}}) {
    CHECK(failure_of(right.address_of_group(address, 0xc001)) == error_kind::invalid_input);
    const error e =
        failure_of(right.join_multicast(address, bed.is_ethernet() ? lid(0) : lid(0xc001)));
    CHECK(e == error_kind::invalid_input);
    CHECK(e.native_errno() == 0);
    CHECK_THAT(e.message(), Catch::Contains("multicast"));
  }
}

TEST_CASE("a multicast reaches every member once and no other queue pair") {
  const testbed bed;
  const completion_queue others_queue = must(completion_queue::create(bed.context, 16));
  const multicast_group members = multicast_group::of(bed, 9);
  auto sender = must(must(build_queue_pair<transport::ud>()
                              .protection_domain(bed.domain)
                              .send_completion_queue(bed.left_queue)
                              .receive_completion_queue(others_queue)
                              .qkey(test_key)
                              .build())
                         .activate());
  const host_membership on_host(members.address, sender.endpoint().address);
  auto first = right_of(bed);
  auto second = right_of(bed);
  auto stranger = right_of(bed);
  for (connected_datagram* each : {&sender, &first, &second})
    must(each->join_multicast(members.address, members.multicast_lid));
  const address_handle to_all =
      must(sender.address_of_group(members.address, members.multicast_lid));
  buffer<> memory(bed.domain, 4 * (header + 8));
  const auto place = [&](std::size_t number) {
    return memory.scatter(number * (header + 8), header + 8);
  };
  must(first.post_receive({.elements = place(0)}, {.id = 0}));
  must(second.post_receive({.elements = place(1)}, {.id = 1}));
  must(stranger.post_receive({.elements = place(2)}, {.id = 2}));
  must(sender.post_receive({.elements = place(3)}, {.id = 3}));
  send(bed, sender, to_all.destination_group(test_key), pattern(8, 19));

  std::vector<work_completion> arrived;
  std::array<work_completion, 4> slots;
  for (const auto until = clock::now() + patience; arrived.size() < 3 && clock::now() < until;)
    for (const auto* queue : {&bed.right_queue, &others_queue})
      for (const work_completion& each : must(queue->poll(slots))) arrived.push_back(each);
  if (arrived.size() < 3 && !device_name().starts_with("soft") && !device_name().starts_with("rxe"))
    SKIP("the network does not loop multicasts back or must be notified of the group first");
  REQUIRE(arrived.size() == 3);
  std::array<bool, 4> got{};
  for (const work_completion& each : arrived) {
    REQUIRE(each.wr_id() < got.size());
    CHECK_FALSE(got.at(each.wr_id()));
    got.at(each.wr_id()) = true;
    const received_datagram datagram =
        must(received_datagram::from(each, memory.content().subspan(each.wr_id() * (header + 8))));
    CHECK(copy_of(datagram.payload()) == pattern(8, 19));
    CHECK(datagram.source() == sender.number());
    CHECK(datagram.has_global_route());
    CHECK(datagram.destination_address() == members.address);
    CHECK(datagram.source_address() == sender.endpoint().address);
  }
  CHECK_FALSE(got[2]);
  CHECK(count_within_a_moment(bed.right_queue) == 0);
  CHECK(count_within_a_moment(others_queue) == 0);
}

TEST_CASE("a queue pair that has left a multicast group receives nothing while members do") {
  const testbed bed;
  const multicast_group members = multicast_group::of(bed, 10);
  auto sender = left_of(bed);
  const host_membership on_host(members.address, sender.endpoint().address);
  auto leaver = right_of(bed);
  auto member = right_of(bed);
  must(leaver.join_multicast(members.address, members.multicast_lid));
  must(member.join_multicast(members.address, members.multicast_lid));
  must(leaver.leave_multicast(members.address, members.multicast_lid));
  const address_handle to_all =
      must(sender.address_of_group(members.address, members.multicast_lid));
  const datagram_inbox leavers(bed, leaver, 1, 8);
  datagram_inbox at_member(bed, member, 2, 8);
  send(bed, sender, to_all.destination_group(test_key), pattern(8, 20));
  if (!device_name().starts_with("soft") && !device_name().starts_with("rxe"))
    SKIP("the network may have to be notified of the group first");
  CHECK(copy_of(at_member.take().payload()) == pattern(8, 20));
  CHECK(count_within_a_moment(bed.right_queue) == 0);
}
