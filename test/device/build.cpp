// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>
#include <climits>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// Alters the results of port queries until this object is destroyed, so that a test can simulate
/// ports with attributes that no available device has.
class altered_ports {
 public:
  using alteration = void (*)(ibv_port_attr&);

  altered_ports(const context& altered, alteration alter)
      : operations_(verbs_get_ctx(altered.native_handle())) {
    REQUIRE(operations_ != nullptr);
    original_ = std::exchange(operations_->query_port, &query);
    alter_ = alter;
  }
  ~altered_ports() { operations_->query_port = original_; }
  altered_ports(const altered_ports&) = delete;
  altered_ports& operator=(const altered_ports&) = delete;

 private:
  static int query(ibv_context* context, std::uint8_t number, ibv_port_attr* port,
                   std::size_t size) {
    const int errnum = original_(context, number, port, size);
    if (errnum == 0) alter_(*port);
    return errnum;
  }

  verbs_context* operations_;
  static inline int (*original_)(ibv_context*, std::uint8_t, ibv_port_attr*, std::size_t) = nullptr;
  static inline alteration alter_ = nullptr;
};

ibv_port_state told_state = IBV_PORT_DOWN;  // global, because alterations capture no variables

/// Checks that the library itself refused a value above a limit, and that the message contains the
/// parameter, the value and the limit.
void check_above_limit(const error& e, const std::string& parameter, std::int64_t value,
                       std::int64_t limit) {
  INFO(e);
  CHECK(e == error_kind::invalid_input);
  CHECK(e.native_errno() == 0);
  CHECK_THAT(e.message(), Catch::Contains(parameter) && Catch::Contains(std::to_string(value)) &&
                              Catch::Contains(std::to_string(limit)));
}

}  // namespace

TEST_CASE("a queue pair that is built with defaults is prepared") {
  const testbed bed;
  const prepared pair = must(bed.left().build());
  CHECK(must(pair.query_state()) == queue_pair_state::init);
  CHECK(pair.native_handle()->qp_type == IBV_QPT_RC);
  CHECK(pair.number().value() == pair.native_handle()->qp_num);

  const queue_pair_capacities& granted = pair.capacities();
  const auto elements = static_cast<std::uint32_t>(std::min(16, bed.limits.max_sge));
  CHECK(granted.max_send_work_requests >= 16);
  CHECK(granted.max_receive_work_requests >= 16);
  CHECK(granted.max_send_elements >= elements);
  CHECK(granted.max_receive_elements >= elements);

  const auto [attributes, initial] = query(pair.native_handle());
  CHECK(attributes.qp_state == IBV_QPS_INIT);
  CHECK(attributes.port_num == bed.port.number().value());
  CHECK(attributes.pkey_index == 0);
  CHECK(initial.sq_sig_all == 0);

  const endpoint& end = pair.endpoint();
  CHECK(end.number == pair.number());
  CHECK(end.type == transport::rc);
  CHECK(end.link_layer == bed.port.link_layer());
  CHECK(end.lid == bed.port.lid());
  CHECK(end.mtu == bed.port.active_mtu());
  CHECK(end.reads_as_initiator.value() == std::min(16, bed.limits.max_qp_init_rd_atom));
  CHECK(end.reads_as_target.value() == std::min(16, bed.limits.max_qp_rd_atom));
  CHECK(must(endpoint::decode(end.encode())) == end);
}

TEST_CASE("a queue pair that is connected with defaults has the documented attributes") {
  const testbed bed;
  const auto [left, right] = connect(bed);
  CHECK(must(left.query_state()) == queue_pair_state::ready_to_send);
  const ibv_qp_attr attributes = query(left.native_handle()).attributes;
  CHECK(attributes.timeout == 14);
  // rxe interprets 7 as unlimited, so the library's default for rxe is 6.
  CHECK(attributes.retry_cnt == (device_name().starts_with("rxe") ? 6 : 7));
  CHECK(attributes.rnr_retry == 7);
  CHECK(attributes.min_rnr_timer == 12);
  CHECK(attributes.path_mtu == bed.port.active_mtu().native());
  CHECK(attributes.sq_psn == left.endpoint().send_psn.value());
  CHECK(attributes.rq_psn == right.endpoint().send_psn.value());
  CHECK(attributes.dest_qp_num == right.number().value());
  CHECK(attributes.max_rd_atomic ==
        std::min({16, bed.limits.max_qp_init_rd_atom, bed.limits.max_qp_rd_atom}));
}

TEST_CASE("the options of a builder are set on the device at the transition to INIT") {
  const testbed bed;
  const auto elements = static_cast<std::uint32_t>(std::min(3, bed.limits.max_sge));
  const auto requests = std::min(100, bed.limits.max_qp_wr);
  for (const access_flags rights : {access::local_write, access::local_write | access::remote_write,
                                    access::local_write | access::remote_read, all_rights}) {
    INFO(rights);
    const prepared pair =
        must(bed.builder(bed.left_queue)
                 .access(rights)
                 .port(bed.port.number())
                 .pkey_index(0)
                 .max_send_work_requests(must(work_request_count::from(requests)))
                 .max_receive_work_requests(must(work_request_count::from(requests / 2)))
                 .max_send_elements(must(element_count::from(elements)))
                 .max_receive_elements(must(element_count::from(elements)))
                 .max_inline_data(32)
                 .signal_all_sends()
                 .send_psn(0x123456)
                 .build());
    CHECK(pair.endpoint().send_psn.value() == 0x123456);
    const auto [attributes, initial] = query(pair.native_handle());
    CHECK(attributes.qp_state == IBV_QPS_INIT);
    CHECK(attributes.port_num == bed.port.number().value());
    CHECK(attributes.pkey_index == 0);
    // Local write has no meaning for a queue pair, and mlx5 does not store it.
    const auto remote = [](unsigned bits) { return bits & ~unsigned{IBV_ACCESS_LOCAL_WRITE}; };
    CHECK(remote(attributes.qp_access_flags) == remote(rights.bits));
    CHECK(initial.sq_sig_all == 1);

    const queue_pair_capacities& granted = pair.capacities();
    CHECK(granted.max_send_work_requests >= static_cast<std::uint32_t>(requests));
    CHECK(granted.max_receive_work_requests >= static_cast<std::uint32_t>(requests / 2));
    CHECK(granted.max_send_elements >= elements);
    CHECK(granted.max_receive_elements >= elements);
    CHECK(granted.max_inline_data >= 32);
    CHECK(initial.cap.max_send_wr >= granted.max_send_work_requests);
    CHECK(initial.cap.max_recv_wr >= granted.max_receive_work_requests);
    CHECK(initial.cap.max_send_sge >= granted.max_send_elements);
    CHECK(initial.cap.max_recv_sge >= granted.max_receive_elements);
  }
}

TEST_CASE("the options of a builder are set on the device by the transition to RTS") {
  const testbed bed;
  // Some devices round read depths up to a power of two, so the test requests powers of two.
  const int most_initiated = bed.limits.max_qp_init_rd_atom;
  const int most_answered = bed.limits.max_qp_rd_atom;
  if (most_initiated < 4 || most_answered < 4) SKIP("the device's read depths are too small");
  prepared first = must(bed.left()
                            .rnr_retry_count(3)
                            .ack_retry_count(5)
                            .min_rnr_timer(20)
                            .ack_timeout(16)
                            .path_mtu(512)
                            .send_psn(0x123456)
                            .receive_psn(0x654321)
                            .max_reads_as_initiator(4)
                            .max_reads_as_target(2)
                            .service_level(3)
                            .hop_limit(17)
                            .traffic_class(32)
                            .build());
  prepared second = must(bed.right().max_reads_as_initiator(1).max_reads_as_target(4).build());
  CHECK(first.endpoint().mtu.bytes() == 512);
  CHECK(first.endpoint().reads_as_initiator.value() == 4);
  CHECK(first.endpoint().reads_as_target.value() == 2);

  const auto [left, right] = connect(std::move(first), std::move(second));
  const ibv_qp_attr attributes = query(left.native_handle()).attributes;
  CHECK(attributes.qp_state == IBV_QPS_RTS);
  CHECK(attributes.rnr_retry == 3);
  CHECK(attributes.retry_cnt == 5);
  CHECK(attributes.min_rnr_timer == 20);
  CHECK(attributes.timeout == 16);
  CHECK(attributes.path_mtu == IBV_MTU_512);
  CHECK(attributes.sq_psn == 0x123456);
  CHECK(attributes.rq_psn == 0x654321);
  CHECK(attributes.max_rd_atomic == 4);
  CHECK(attributes.max_dest_rd_atomic == 1);
  CHECK(attributes.dest_qp_num == right.number().value());
  CHECK(attributes.ah_attr.port_num == bed.port.number().value());
  if (bed.is_ethernet()) {
    CHECK(attributes.ah_attr.is_global == 1);
    CHECK(gid::from_native(attributes.ah_attr.grh.dgid) == right.endpoint().address);
    CHECK(attributes.ah_attr.grh.traffic_class == 32);
    // If the kernel has a route to the peer, it uses the hop limit of that route.
    CHECK(attributes.ah_attr.grh.hop_limit != 0);
    if (device_name().starts_with("soft")) CHECK(attributes.ah_attr.grh.hop_limit == 17);
    // Ethernet has no service levels: rxe drops the value, and other drivers convert it to a
    // priority.
    CHECK((attributes.ah_attr.sl == 3 || attributes.ah_attr.sl == 0));
  } else {
    CHECK(attributes.ah_attr.is_global == 0);
    CHECK(attributes.ah_attr.dlid == right.endpoint().lid.value());
    CHECK(attributes.ah_attr.sl == 3);
  }
  // The other end has agreed to the same MTU, and in each direction to the smaller read depth.
  const ibv_qp_attr other = query(right.native_handle()).attributes;
  CHECK(other.path_mtu == IBV_MTU_512);
  CHECK(other.max_rd_atomic == 1);
  CHECK(other.max_dest_rd_atomic == 4);
  CHECK(other.rq_psn == 0x123456);
}

TEST_CASE("an infinite ACK timeout and finite RNR retry counts are set on the device") {
  const testbed bed;
  const connected unlimited =
      connect_to_itself(must(bed.left().ack_timeout(ack_timeout::infinite()).build()));
  CHECK(query(unlimited.native_handle()).attributes.timeout == 0);
  for (int count = 0; count <= 6; ++count) {
    const connected pair = connect_to_itself(
        must(bed.left().rnr_retry_count(must(rnr_retry_count::from(count))).build()));
    CHECK(query(pair.native_handle()).attributes.rnr_retry == count);
  }
}

TEST_CASE("a queue capacity above the device's limit is refused and the error gives both numbers") {
  const testbed bed;
  if (bed.limits.max_qp_wr < INT_MAX) {
    const auto above = must(work_request_count::from(bed.limits.max_qp_wr + 1));
    check_above_limit(failure_of(bed.left().max_send_work_requests(above).build()),
                      "max send work requests", above.value(), bed.limits.max_qp_wr);
    check_above_limit(failure_of(bed.left().max_receive_work_requests(above).build()),
                      "max receive work requests", above.value(), bed.limits.max_qp_wr);
  }
  if (bed.limits.max_sge < INT_MAX) {
    const auto above = must(element_count::from(bed.limits.max_sge + 1));
    check_above_limit(failure_of(bed.left().max_send_elements(above).build()), "max send elements",
                      above.value(), bed.limits.max_sge);
    check_above_limit(failure_of(bed.left().max_receive_elements(above).build()),
                      "max receive elements", above.value(), bed.limits.max_sge);
  }
}

TEST_CASE("a read depth above the device's limit is refused and the error gives both numbers") {
  const testbed bed;
  if (bed.limits.max_qp_init_rd_atom < read_depth::maximum) {
    const auto above = must(read_depth::from(bed.limits.max_qp_init_rd_atom + 1));
    check_above_limit(failure_of(bed.left().max_reads_as_initiator(above).build()),
                      "max reads as initiator", above.value(), bed.limits.max_qp_init_rd_atom);
  }
  if (bed.limits.max_qp_rd_atom < read_depth::maximum) {
    const auto above = must(read_depth::from(bed.limits.max_qp_rd_atom + 1));
    check_above_limit(failure_of(bed.left().max_reads_as_target(above).build()),
                      "max reads as target", above.value(), bed.limits.max_qp_rd_atom);
  }
}

TEST_CASE("requesting more inline data than any device grants returns the device's error") {
  const testbed bed;
  const error e = failure_of(bed.left().max_inline_data(0x7fffffff).build());
  INFO(e);
  CHECK(e.native_errno() != 0);
  CHECK(std::string(e.operation()) == "ibv_create_qp");
  if (e.native_errno() == EINVAL) CHECK_THAT(e.hint(), Catch::Contains("inline"));
}

TEST_CASE("a port that the device does not have is refused") {
  const testbed bed;
  const auto beyond = must(port_number::from(bed.limits.phys_port_cnt + 1));
  const error e = failure_of(bed.left().port(beyond).build());
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains("port"));
}

TEST_CASE("a port that is not active is refused") {
  const testbed bed;
  for (const ibv_port_state state :
       {IBV_PORT_DOWN, IBV_PORT_INIT, IBV_PORT_ARMED, IBV_PORT_ACTIVE_DEFER}) {
    const altered_ports altered(bed.context, [](ibv_port_attr& port) { port.state = told_state; });
    told_state = state;
    CAPTURE(to_string(static_cast<port_state>(state)));
    const error asked_for = failure_of(bed.left().port(bed.port.number()).build());
    CHECK(asked_for == error_kind::not_found);
    CHECK_THAT(asked_for.message(), Catch::Contains("not active"));
    const error by_default = failure_of(bed.left().build());
    CHECK(by_default == error_kind::not_found);
    CHECK_THAT(by_default.message(), Catch::Contains("no port of the device is active"));
  }
  must(bed.left().port(bed.port.number()).build());
}

TEST_CASE("a path MTU above the port's active MTU is refused and the error gives both numbers") {
  const testbed bed;
  const altered_ports altered(bed.context,
                              [](ibv_port_attr& port) { port.active_mtu = IBV_MTU_1024; });
  check_above_limit(failure_of(bed.left().path_mtu(2048).build()), "path MTU", 2048, 1024);
  CHECK(must(bed.left().build()).endpoint().mtu == path_mtu(1024));
  CHECK(must(bed.left().path_mtu(1024).build()).endpoint().mtu == path_mtu(1024));
}

TEST_CASE("a pkey index beyond the port's table is refused") {
  const testbed bed;
  const auto beyond = pkey_index::from(bed.port.pkey_table_length());
  if (!beyond.has_value()) SKIP("the pkey table is as long as an index can be");
  const error e = failure_of(bed.left().pkey_index(beyond.value()).build());
  CHECK(e == error_kind::invalid_input);
  CHECK(e.native_errno() == 0);
  CHECK_THAT(e.message(), Catch::Contains("pkey") &&
                              Catch::Contains(std::to_string(bed.port.pkey_table_length())));
}

TEST_CASE("an empty entry of the GID table is refused") {
  const testbed bed;
  std::set<unsigned> used;
  for (const gid_entry& each : must(bed.context.query_gid_table(bed.port.number())))
    used.insert(each.index.value());
  const unsigned length = std::min(bed.port.gid_table_length(), 256U);
  unsigned index = 0;
  while (index < length && used.contains(index)) ++index;
  if (index == length) SKIP("the GID table has no empty entry");
  const error e = failure_of(bed.left().gid_index(must(gid_index::from(index))).build());
  CHECK(e == error_kind::not_found);
  CHECK_THAT(e.message(), Catch::Contains("GID") && Catch::Contains("empty"));
}

TEST_CASE("a GID index beyond the table is refused with the last valid index") {
  const testbed bed;
  const unsigned length = bed.port.gid_table_length();
  if (length > gid_index::maximum) SKIP("the GID table is longer than an index can be");
  check_above_limit(failure_of(bed.left().gid_index(must(gid_index::from(length))).build()),
                    "GID index", length, length - 1);
}

TEST_CASE("parents of different contexts are refused") {
  const testbed bed;
  const testbed other;
  const error domain = failure_of(build_queue_pair<transport::rc>()
                                      .protection_domain(other.domain)
                                      .completion_queue(bed.left_queue)
                                      .access(access::local_write)
                                      .build());
  CHECK(domain == error_kind::invalid_input);
  CHECK_THAT(domain.message(), Catch::Contains("context"));
  CHECK(failure_of(build_queue_pair<transport::rc>()
                       .protection_domain(bed.domain)
                       .send_completion_queue(other.left_queue)
                       .receive_completion_queue(bed.left_queue)
                       .access(access::local_write)
                       .build()) == error_kind::invalid_input);
  CHECK(failure_of(build_queue_pair<transport::rc>()
                       .protection_domain(bed.domain)
                       .send_completion_queue(bed.left_queue)
                       .receive_completion_queue(other.left_queue)
                       .access(access::local_write)
                       .build()) == error_kind::invalid_input);
}

TEST_CASE("access flags that do not apply to queue pairs are refused") {
  const testbed bed;
  const error e = failure_of(
      bed.builder(bed.left_queue).access(access_flags::from_bits(IBV_ACCESS_ON_DEMAND)).build());
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains("access"));
}

TEST_CASE("a builder creates several queue pairs with different numbers and PSNs") {
  const testbed bed;
  const auto builder = bed.left();
  std::set<std::uint32_t> numbers, psns;
  std::vector<prepared> pairs;
  for (int i = 0; i < 8; ++i) {
    pairs.push_back(must(builder.build()));
    numbers.insert(pairs.back().number().value());
    psns.insert(pairs.back().endpoint().send_psn.value());
  }
  CHECK(numbers.size() == 8);
  // The PSNs are random, so a few of them can be equal by chance.
  CHECK(psns.size() > 4);
}

TEST_CASE("a queue pair prints its device and its state") {
  const testbed bed;
  prepared pair = must(bed.left().build());
  std::ostringstream before;
  before << pair;
  CHECK_THAT(before.str(), Catch::Contains("INIT") && Catch::Contains(device_name()));
  const connected after = connect_to_itself(std::move(pair));
  std::ostringstream text;
  text << after;
  CHECK_THAT(text.str(), Catch::Contains("RTS"));
}

TEST_CASE(
    "an empty optional keeps the builder's default and an optional with a value replaces it") {
  const testbed bed;
  const std::optional<work_request_count> no_count;
  const std::optional<ack_timeout> no_timeout;
  const std::optional<path_mtu> no_mtu;
  const auto plain = must(bed.left().build());
  const auto defaulted = must(bed.left()
                                  .max_send_work_requests(no_count)
                                  .max_receive_work_requests(no_count)
                                  .max_send_elements(std::nullopt)
                                  .max_receive_elements(std::nullopt)
                                  .max_inline_data(std::nullopt)
                                  .signal_all_sends(std::nullopt)
                                  .port(std::optional<port_number>())
                                  .gid_index(std::nullopt)
                                  .ack_timeout(no_timeout)
                                  .path_mtu(no_mtu)
                                  .max_reads_as_initiator(std::nullopt)
                                  .build());
  CHECK(defaulted.capacities() == plain.capacities());
  CHECK(defaulted.endpoint().address == plain.endpoint().address);
  CHECK(defaulted.endpoint().mtu == plain.endpoint().mtu);
  CHECK(defaulted.endpoint().reads_as_initiator == plain.endpoint().reads_as_initiator);
  CHECK(query(defaulted.native_handle()).initial.sq_sig_all == 0);

  const std::optional<work_request_count> count = must(work_request_count::from(31));
  const std::optional<path_mtu> mtu = path_mtu(512);
  const auto given = must(bed.left()
                              .max_send_work_requests(count)
                              .path_mtu(mtu)
                              .signal_all_sends(std::optional<bool>(true))
                              .ack_timeout(std::optional<ack_timeout>(ack_timeout(9)))
                              .build());
  CHECK(given.capacities().max_send_work_requests >= 31);
  CHECK(given.endpoint().mtu == path_mtu(512));
  CHECK(query(given.native_handle()).initial.sq_sig_all == 1);
  const bool all = false;
  CHECK(query(must(bed.left().signal_all_sends(all).build()).native_handle()).initial.sq_sig_all ==
        0);
}

TEST_CASE("all parents of a queue pair must belong to one context") {
  const testbed bed;
  const context other = must(open_device(device_name()));
  const completion_queue foreign = must(completion_queue::create(other, 16));
  const auto builder =
      build_queue_pair<transport::rc>().protection_domain(bed.domain).access(all_rights);
  const auto refused = [](auto outcome) {
    const error e = failure_of(std::move(outcome));
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains("from the same context"));
  };
  refused(builder.send_completion_queue(foreign).receive_completion_queue(bed.left_queue).build());
  refused(builder.send_completion_queue(bed.left_queue).receive_completion_queue(foreign).build());
}
