// SPDX-License-Identifier: Apache-2.0
/// \file
/// Queue pairs that a C program created and that the library adopts or borrows, and queue
/// pairs that the library releases to a C program.

#include "failing_verb.hpp"
#include "transports.hpp"

#include <optional>

using namespace verbspp;
using namespace verbspp::test;
using verbspp::queue_pair_state::init;
using verbspp::queue_pair_state::ready_to_send;
using verbspp::queue_pair_state::reset;

namespace {

/// Creates a queue pair with the calls that a C program would use.
ibv_qp* made_by_c(const testbed& bed, transport type, ibv_srq* receives = nullptr) {
  ibv_qp_init_attr initial{};
  initial.send_cq = initial.recv_cq = bed.left_queue.native_handle();
  initial.srq = receives;
  initial.qp_type = static_cast<ibv_qp_type>(type);
  initial.cap = {.max_send_wr = 8,
                 .max_recv_wr = 8,
                 .max_send_sge = 1,
                 .max_recv_sge = 1,
                 .max_inline_data = 0};
  ibv_qp* const made = ibv_create_qp(bed.domain.native_handle(), &initial);
  REQUIRE(made != nullptr);
  return made;
}

/// Creates a queue pair and moves it to INIT, as `rdma_create_qp` does for RC.
ibv_qp* prepared_by_c(const testbed& bed, transport type) {
  ibv_qp* const made = made_by_c(bed, type);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = bed.port.number().value();
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  attributes.qkey = test_key.value();
  REQUIRE(ibv_modify_qp(made, &attributes,
                        IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
                            (type == transport::ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
  return made;
}

/// Checks that the queue pair still exists, and then destroys it.
void destroy_by_c(ibv_qp* made) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  CHECK(ibv_query_qp(made, &attributes, IBV_QP_STATE, &initial) == 0);
  CHECK(ibv_destroy_qp(made) == 0);
}

template <transport Transport>
auto parents(const testbed& bed) {
  return build_queue_pair<Transport>()
      .protection_domain(bed.domain)
      .completion_queue(bed.left_queue);
}

/// Sends a message from a queue pair to itself. The send and the receive complete in the same
/// queue, in either order.
template <transport Transport>
void check_talk(const testbed& bed, connected_queue_pair<Transport>& pair) {
  constexpr std::size_t header = header_of<Transport>;
  buffer<> outbox(bed.domain, pattern(16, 1));
  buffer<> inbox(bed.domain, header + 16);
  must(pair.post_receive({.elements = inbox.scatter()}, {.id = 1}));
  const sender_to<Transport> sender(pair, pair.endpoint());
  sender.send(pair, 2, outbox.gather());
  for (const work_completion& each : take(bed.left_queue, 2)) CHECK(each.is_success());
  CHECK(std::vector<std::byte>(inbox.bytes().begin() + header, inbox.bytes().end()) ==
        outbox.bytes());
}

template <class Outcome>
void check_refused(Outcome outcome, error_kind kind, const char* words) {
  const error e = failure_of(std::move(outcome));
  INFO(e);
  CHECK(e == kind);
  CHECK(std::string(e.operation()) == "queue pair from_native");
  CHECK_THAT(e.message(), Catch::Contains(words));
}

}  // namespace

TEST_CASE("a C program's queue pair can be borrowed and connected and used") {
  const testbed bed;
  const int before = live_objects();
  ibv_qp* const made = made_by_c(bed, transport::rc);
  {
    auto idle = must(parents<transport::rc>(bed)
                         .access(all_rights)
                         .from_native<reset>(made, ownership::borrowed));
    CHECK(idle.native_handle() == made);
    CHECK(idle.number().value() == made->qp_num);
    CHECK(idle.capacities().max_send_work_requests >= 8);
    auto prepared = must(std::move(idle).prepare());
    const endpoint self = prepared.endpoint();
    CHECK(self.number.value() == made->qp_num);
    auto pair = must(std::move(prepared).handshake(self));
    check_talk<transport::rc>(bed, pair);
  }
  destroy_by_c(made);
  CHECK(live_objects() == before);
}

TEST_CASE("an adopted queue pair is destroyed by the library") {
  const testbed bed;
  const int before = live_objects();
  {
    auto pair = must(parents<transport::rc>(bed).from_native<init>(
        prepared_by_c(bed, transport::rc), ownership::taken));
    CHECK(live_objects() == before + 1);
    auto connected = connect_to_itself(std::move(pair));
    // The queue pair keeps the access rights that the C program set, even when it is prepared
    // again.
    auto again = must(must(std::move(connected).to_reset()).prepare());
    CHECK(must(again.query()).access().contains(access::remote_write));
    CHECK_FALSE(must(again.query()).access().contains(access::remote_read));
  }
  CHECK(live_objects() == before);
}

TEST_CASE("a C program's UD queue pair keeps its queue key") {
  const testbed bed;
  ibv_qp* const made = prepared_by_c(bed, transport::ud);
  {
    auto pair = must(parents<transport::ud>(bed).from_native<init>(made, ownership::borrowed));
    CHECK(pair.endpoint().qkey == test_key);
    CHECK(pair.endpoint().type == transport::ud);
    auto active = must(std::move(pair).activate());
    check_talk<transport::ud>(bed, active);
  }
  destroy_by_c(made);
}

TEST_CASE("a released queue pair can be adopted again in its state") {
  const testbed bed;
  const int before = live_objects();
  connected pair = connect_to_itself(must(bed.left().send_psn(0x1234).build()));
  const queue_pair_number number = pair.number();
  ibv_qp* const released = std::move(pair).release();
  REQUIRE(released != nullptr);
  CHECK(pair.native_handle() == nullptr);  // NOLINT(bugprone-use-after-move)
  CHECK(std::move(pair).release() == nullptr);
  CHECK(live_objects() == before + 1);
  CHECK(released->qp_num == number.value());

  auto back =
      must(parents<transport::rc>(bed).from_native<ready_to_send>(released, ownership::taken));
  CHECK(back.number() == number);
  check_talk<transport::rc>(bed, back);
  destroy_by_c(std::move(back).release());
  CHECK(live_objects() == before);
}

TEST_CASE("assigning to a borrowed queue pair does not destroy it") {
  const testbed bed;
  ibv_qp* const made = prepared_by_c(bed, transport::rc);
  auto pair = must(parents<transport::rc>(bed).from_native<init>(made, ownership::borrowed));
  pair = must(bed.left().build());
  CHECK(pair.native_handle() != made);
  destroy_by_c(made);
}

TEST_CASE("a borrowed queue pair whose transition fails still exists") {
  const testbed bed;
  ibv_qp* const made = prepared_by_c(bed, transport::rc);
  auto pair = must(parents<transport::rc>(bed).from_native<init>(made, ownership::borrowed));
  endpoint nobody = pair.endpoint();
  nobody.type = transport::uc;
  CHECK(failure_of(std::move(pair).handshake(nobody)) == error_kind::mismatch);
  destroy_by_c(made);
}

TEST_CASE("a borrowed queue pair leaves the multicast groups that it joined") {
  const testbed bed;
  ibv_qp* const made = prepared_by_c(bed, transport::ud);
  constexpr gid group{{0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  const lid multicast_lid = bed.is_ethernet() ? lid(0) : lid(0xc001);
  {
    auto pair = must(parents<transport::ud>(bed).from_native<init>(made, ownership::borrowed));
    must(pair.join_multicast(group, multicast_lid));
  }
  // Some devices refuse to destroy a member of a group, so this shows indirectly that the queue
  // pair has left the group.
  destroy_by_c(made);
}

TEST_CASE("a queue pair is adopted only with its actual type and state and parents") {
  const testbed bed;
  ibv_qp* const made = prepared_by_c(bed, transport::rc);
  const auto builder = parents<transport::rc>(bed);
  constexpr auto borrowed = ownership::borrowed;
  check_refused(builder.from_native<init>(nullptr, borrowed), error_kind::invalid_input, "null");
  check_refused(parents<transport::uc>(bed).from_native<init>(made, borrowed), error_kind::mismatch,
                "a different transport than");
  check_refused(builder.from_native<ready_to_send>(made, borrowed), error_kind::mismatch,
                "this queue pair is in INIT, not in the state that from_native names");
  check_refused(builder.access(all_rights).from_native<reset>(made, borrowed), error_kind::mismatch,
                "in INIT");
  const auto queues = build_queue_pair<transport::rc>();
  check_refused(queues.protection_domain(must(protection_domain::allocate(bed.context)))
                    .completion_queue(bed.left_queue)
                    .from_native<init>(made, borrowed),
                error_kind::mismatch, "another protection domain");
  check_refused(queues.protection_domain(bed.domain)
                    .send_completion_queue(bed.left_queue)
                    .receive_completion_queue(bed.right_queue)
                    .from_native<init>(made, borrowed),
                error_kind::mismatch, "other completion queues");
  check_refused(queues.protection_domain(bed.domain)
                    .send_completion_queue(bed.right_queue)
                    .receive_completion_queue(bed.left_queue)
                    .from_native<init>(made, borrowed),
                error_kind::mismatch, "other completion queues");
  check_refused(builder.port(must(port_number::from(bed.port.number().value() + 1)))
                    .from_native<init>(made, borrowed),
                error_kind::mismatch, "a different port than");
  check_refused(builder.extended_posting().from_native<init>(made, borrowed),
                error_kind::not_supported, "ibv_create_qp_ex");

  const auto shared = must(shared_receive_queue::create(bed.domain, 8));
  check_refused(builder.shared_receive_queue(shared).from_native<init>(made, borrowed),
                error_kind::mismatch, "without that shared receive queue");
  ibv_qp* const sharing = made_by_c(bed, transport::rc, shared.native_handle());
  check_refused(builder.access(all_rights).from_native<reset>(sharing, borrowed),
                error_kind::mismatch, "give it to the builder");
  {
    const auto pair = must(builder.access(all_rights)
                               .shared_receive_queue(shared)
                               .from_native<reset>(sharing, borrowed));
    CHECK(pair.shared_receive_queue() == shared);
  }
  destroy_by_c(sharing);

  const failing_verb query_fails("ibv_query_qp", EIO);
  CHECK(failure_of(builder.from_native<init>(made, borrowed)) == error_kind::driver);
  CHECK(query_fails.calls() == 1);
  CHECK(ibv_destroy_qp(made) == 0);
}

namespace {

/// The attributes that a connection manager supplies for one transition of an RC queue pair. The
/// queue pair is connected to itself.
struct step {
  ibv_qp_attr attributes{};
  int mask = IBV_QP_STATE;
};

step to_receive(const endpoint& self, const path& way, port_number port) {
  step made;
  made.attributes.qp_state = IBV_QPS_RTR;
  made.attributes.ah_attr = way.native(port);
  made.attributes.path_mtu = IBV_MTU_256;
  made.attributes.dest_qp_num = self.number.value();
  made.attributes.rq_psn = 0x777;
  made.attributes.max_dest_rd_atomic = 1;
  made.attributes.min_rnr_timer = 12;
  made.mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return made;
}

step to_send() {
  step made;
  made.attributes.qp_state = IBV_QPS_RTS;
  made.attributes.sq_psn = 0x777;
  made.attributes.timeout = 14;
  made.attributes.retry_cnt = 7;
  made.attributes.rnr_retry = 7;
  made.attributes.max_rd_atomic = 1;
  made.mask |= IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC;
  return made;
}

}  // namespace

TEST_CASE("a connection manager's attributes can bring up a queue pair") {
  const testbed bed;
  prepared pair = must(bed.left().build());
  const endpoint self = pair.endpoint();
  const step receiving = to_receive(self, must(pair.path_to(self)), bed.port.number());
  auto receiver = must(std::move(pair).modify_native<queue_pair_state::ready_to_receive>(
      receiving.attributes, receiving.mask));
  const step sending = to_send();
  auto sender = must(std::move(receiver).modify_native<ready_to_send>(
      sending.attributes, sending.mask & ~IBV_QP_STATE));
  CHECK(sender.endpoint().send_psn == packet_sequence_number(0x777));
  check_talk<transport::rc>(bed, sender);

  step rights;
  rights.attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
  must(sender.modify_native(rights.attributes, IBV_QP_ACCESS_FLAGS));
  CHECK_FALSE(must(sender.query()).access().contains(access::remote_write));
}

TEST_CASE("the attributes of a connection manager are checked before a transition") {
  const testbed bed;
  const auto refused = [&](int without, int with, ibv_qp_state to, const char* words) {
    prepared pair = must(bed.left().build());
    const endpoint self = pair.endpoint();
    step receiving = to_receive(self, must(pair.path_to(self)), bed.port.number());
    receiving.attributes.qp_state = to;
    const failing_verb asked("ibv_modify_qp", EIO);
    const error e = failure_of(std::move(pair).modify_native<queue_pair_state::ready_to_receive>(
        receiving.attributes, (receiving.mask & ~without) | with));
    CHECK(e == error_kind::invalid_input);
    CHECK(std::string(e.operation()) == "modify INIT -> RTR");
    CHECK_THAT(e.message(), Catch::EndsWith(words));
    CHECK(asked.calls() == 0);
  };
  refused(IBV_QP_PATH_MTU, 0, IBV_QPS_RTR, "missing: path MTU");
  refused(0, IBV_QP_QKEY, IBV_QPS_RTR, "does not accept an attribute in the mask: queue key");
  refused(0, 0, IBV_QPS_RTS, "for a transition to another state: see their qp_state");

  prepared pair = must(bed.left().build());
  const prepared taken = std::move(pair);
  const auto moved_from = pair.modify_native(ibv_qp_attr{}, 0);  // NOLINT(bugprone-use-after-move)
  CHECK(moved_from.error() == error_kind::invalid_input);
}

TEST_CASE("a queue pair of a C program can be modified with checked attributes") {
  const testbed bed;
  ibv_qp* const made = made_by_c(bed, transport::rc);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = bed.port.number().value();
  constexpr int complete = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS;
  const error incomplete = failure_of(modify_native(made, attributes, complete & ~IBV_QP_PORT));
  CHECK(incomplete == error_kind::invalid_input);
  CHECK(std::string(incomplete.operation()) == "modify RESET -> INIT");
  CHECK_THAT(incomplete.message(), Catch::EndsWith("missing: port"));
  must(modify_native(made, attributes, complete));
  // If no target state is given, the modification applies to the state that the device reports.
  attributes.qp_access_flags = IBV_ACCESS_LOCAL_WRITE;
  must(modify_native(made, attributes, IBV_QP_ACCESS_FLAGS));
  {
    const auto pair =
        must(parents<transport::rc>(bed).from_native<init>(made, ownership::borrowed));
    CHECK(must(pair.query()).access().contains(access::local_write));
  }
  const error strange = failure_of(modify_native(made, attributes, IBV_QP_QKEY));
  CHECK_THAT(strange.message(),
             Catch::EndsWith("does not accept an attribute in the mask: queue key"));
  {
    const failing_verb fails("ibv_modify_qp", EIO);
    CHECK(failure_of(modify_native(made, attributes, IBV_QP_ACCESS_FLAGS)).native_errno() == EIO);
  }
  destroy_by_c(made);
}
