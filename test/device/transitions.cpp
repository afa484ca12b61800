// SPDX-License-Identifier: Apache-2.0
/// \file
/// Compares the transition table with the device. For each state that the device can enter, this
/// test tries the transitions to all states: with the required attributes, without each of them,
/// and with each of the other attributes added.

#include "device.hpp"

#include <array>
#include <cerrno>
#include <iostream>
#include <memory>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr std::array states{IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                            IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};
constexpr int all_attributes =
    IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
    IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
    IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ALT_PATH |
    IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PATH_MIG_STATE |
    IBV_QP_CAP | IBV_QP_DEST_QPN;

/// A queue pair that the test modifies directly, without the types that the library provides.
class subject {
 public:
  subject(const testbed& bed, ibv_qp_type type) : bed_(bed), type_(type) {
    address_ = must(bed.left().build()).endpoint();
    recreate();
  }

  [[nodiscard]] bool exists() const { return native_ != nullptr; }
  [[nodiscard]] int creation_errno() const { return errno_; }

  /// Modifies the queue pair with those attributes that the mask selects. \returns 0 or the errno
  /// value
  int modify(ibv_qp_state from, ibv_qp_state to, int mask) {
    ibv_qp_attr attributes = values();
    attributes.qp_state = to;
    attributes.cur_qp_state = from;
    return detail::errno_of(ibv_modify_qp(native_.get(), &attributes, mask | IBV_QP_STATE));
  }

  /// Creates a new queue pair, and brings it to the state with the attributes that the table
  /// requires.
  void bring_to(ibv_qp_state state) {
    recreate();
    const auto path = [&]() -> std::vector<ibv_qp_state> {
      switch (state) {
        case IBV_QPS_RESET:
          return {};
        case IBV_QPS_INIT:
          return {IBV_QPS_INIT};
        case IBV_QPS_RTR:
          return {IBV_QPS_INIT, IBV_QPS_RTR};
        case IBV_QPS_RTS:
          return {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
        case IBV_QPS_SQD:
          return {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
        case IBV_QPS_SQE:
          return {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
        default:
          return {IBV_QPS_INIT, IBV_QPS_ERR};
      }
    }();
    ibv_qp_state from = IBV_QPS_RESET;
    for (const ibv_qp_state to : path) {
      const int errnum = modify(from, to, transition(type_, from, to)->required);
      INFO("bringing " << name(from) << " -> " << name(to));
      REQUIRE(errnum == 0);
      from = to;
    }
    if (state == IBV_QPS_SQD)
      wait_until([&] { return query(native_.get()).attributes.sq_draining == 0; },
                 "the send queue to drain");
    if (state == IBV_QPS_SQE) fail_a_send();
  }

  /// Returns true if the queue pair can enter SQE, which only a failure can cause. RC queue pairs,
  /// and all queue pairs of some drivers, enter ERR instead.
  bool reaches_send_queue_error() {
    if (type_ == IBV_QPT_RC) return false;
    bring_to(IBV_QPS_SQE);
    return state() == IBV_QPS_SQE;
  }

  [[nodiscard]] ibv_qp_state state() const { return query(native_.get()).attributes.qp_state; }

  static const char* name(ibv_qp_state state) {
    return to_string(static_cast<queue_pair_state>(state));
  }

 private:
  struct destroy {
    void operator()(ibv_qp* queue_pair) const { ibv_destroy_qp(queue_pair); }
  };
  struct destroy_address {
    void operator()(ibv_ah* handle) const { ibv_destroy_ah(handle); }
  };

  void recreate() {
    native_.reset();
    ibv_qp_init_attr initial{};
    initial.qp_type = type_;
    initial.send_cq = initial.recv_cq = bed_.left_queue.native_handle();
    initial.cap = {.max_send_wr = 1,
                   .max_recv_wr = 1,
                   .max_send_sge = 1,
                   .max_recv_sge = 1,
                   .max_inline_data = 0};
    errno = 0;
    native_.reset(ibv_create_qp(bed_.domain.native_handle(), &initial));
    errno_ = errno;
  }

  /// Sends from memory that is not registered.
  void fail_a_send() {
    ibv_ah_attr address = values().ah_attr;
    const std::unique_ptr<ibv_ah, destroy_address> handle(
        ibv_create_ah(bed_.domain.native_handle(), &address));
    REQUIRE(handle != nullptr);
    ibv_sge element{.addr = 0x1000, .length = 8, .lkey = 0xdead00};
    ibv_send_wr request{};
    request.sg_list = &element;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    if (type_ == IBV_QPT_UD) {
      request.wr.ud.ah = handle.get();
      request.wr.ud.remote_qpn = native_->qp_num;
      request.wr.ud.remote_qkey = 0x11111111;
    }
    ibv_send_wr* rejected = nullptr;
    REQUIRE(ibv_post_send(native_.get(), &request, &rejected) == 0);
    REQUIRE_FALSE(take_one(bed_.left_queue).is_success());
    wait_until([&] { return state() != IBV_QPS_RTS; }, "the queue pair to leave RTS");
  }

  /// Returns a valid value for every attribute, with which the queue pair is connected to itself.
  [[nodiscard]] ibv_qp_attr values() const {
    ibv_qp_attr attributes{};
    attributes.qkey = 0x11111111;
    attributes.qp_access_flags = static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE);
    attributes.port_num = attributes.alt_port_num = bed_.port.number().value();
    attributes.path_mtu = IBV_MTU_256;
    attributes.dest_qp_num = native_->qp_num;
    attributes.timeout = attributes.alt_timeout = 14;
    attributes.retry_cnt = attributes.rnr_retry = 7;
    attributes.min_rnr_timer = 12;
    attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1;
    attributes.path_mig_state = IBV_MIG_MIGRATED;
    attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 1;
    attributes.ah_attr.port_num = bed_.port.number().value();
    attributes.ah_attr.dlid = address_.lid.value();
    if (bed_.is_ethernet()) {
      attributes.ah_attr.is_global = 1;
      attributes.ah_attr.grh.dgid = address_.address.native();
      attributes.ah_attr.grh.sgid_index = gid_index();
      attributes.ah_attr.grh.hop_limit = 64;
    }
    attributes.alt_ah_attr = attributes.ah_attr;
    return attributes;
  }

  [[nodiscard]] std::uint8_t gid_index() const {
    for (const gid_entry& entry : must(bed_.context.query_gid_table(bed_.port.number())))
      if (entry.address == address_.address && entry.type == address_.gid_type)
        return entry.index.value();
    throw failure(__FILE__, __LINE__, "the endpoint's GID is not in the table");
  }

  const testbed& bed_;
  ibv_qp_type type_;
  endpoint address_;
  int errno_ = 0;
  std::unique_ptr<ibv_qp, destroy> native_;
};

/// Returns the attribute masks to try for one pair of states.
std::vector<int> masks_to_try(const std::optional<transition_attributes>& taken) {
  const int required = taken ? taken->required : 0;
  const int optional = taken ? taken->optional : 0;
  std::vector<int> masks{required, required | optional, all_attributes,
                         (required | optional) & ~IBV_QP_ALT_PATH};
  for (int bit = 1; bit <= all_attributes; bit <<= 1) {
    if ((all_attributes & bit) == 0) continue;
    masks.push_back((required & bit) != 0 ? required & ~bit : required | bit);
  }
  return masks;
}

/// Returns true if Linux refuses a mask that the table allows, because of a rule that is not in the
/// table: Linux supports alternate paths only on InfiniBand. It also treats a new address in SQD as
/// a new port, which UC does not allow in that state.
bool linux_refuses(const testbed& bed, ibv_qp_type type, ibv_qp_state from, int mask) {
  return ((mask & IBV_QP_ALT_PATH) != 0 && bed.is_ethernet()) ||
         (type == IBV_QPT_UC && from == IBV_QPS_SQD && (mask & IBV_QP_AV) != 0);
}

/// Compares all of the device's transitions with the table. \returns the number of comparisons
unsigned compare_with_table(const testbed& bed, subject& queue_pair, ibv_qp_type type) {
  unsigned verdicts = 0;
  for (const ibv_qp_state from : states) {
    if (from == IBV_QPS_SQE && !queue_pair.reaches_send_queue_error()) continue;
    queue_pair.bring_to(from);
    for (const ibv_qp_state to : states) {
      for (const int mask : masks_to_try(transition(type, from, to))) {
        const int errnum = queue_pair.modify(from, to, mask);
        INFO(to_string(static_cast<transport>(type))
             << ": " << subject::name(from) << " -> " << subject::name(to) << ", mask 0x"
             << std::hex << mask << std::dec << ", the device's errno is " << errnum);
        CHECK((errnum == 0) == (modify_is_valid(type, from, to, mask | IBV_QP_STATE) &&
                                !linux_refuses(bed, type, from, mask)));
        ++verdicts;
        if (errnum == 0)
          queue_pair.bring_to(from);
        else
          CHECK(queue_pair.state() == from);  // a refused modification changes nothing
      }
    }
  }
  return verdicts;
}

}  // namespace

TEST_CASE("the device accepts exactly the table's transitions, except for two rules of Linux") {
  const testbed bed;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    subject queue_pair(bed, type);
    const char* const name = to_string(static_cast<transport>(type));
    if (!queue_pair.exists()) {
      REQUIRE(type != IBV_QPT_RC);
      std::cout << name << ": the device has no queue pairs of this type (errno "
                << queue_pair.creation_errno() << ")\n";
      continue;
    }
    std::cout << name << ": " << compare_with_table(bed, queue_pair, type)
              << " results of transitions compared\n";
  }
}
