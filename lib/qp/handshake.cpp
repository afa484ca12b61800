// SPDX-License-Identifier: Apache-2.0
#include "qp/modification.hpp"
#include <verbspp/qp/queue_pair.hpp>

#include <algorithm>
#include <cerrno>

namespace verbspp::detail {

namespace {

result<path_mtu> agree_on_mtu(const queue_pair_data& queue_pair, const endpoint& remote) noexcept {
  const auto& asked = queue_pair.parameters.mtu;
  if (asked && *asked > remote.mtu)
    return error::mismatch("compare endpoints", "path MTU, bytes", asked->bytes(),
                           remote.mtu.bytes(),
                           "ask for no more than both ports' active MTU, or leave it to the "
                           "handshake");
  return std::min(queue_pair.local.mtu, remote.mtu);
}

ibv_ah_attr address_of(const queue_pair_data& queue_pair, const endpoint& remote) noexcept {
  const connection_parameters& parameters = queue_pair.parameters;
  ibv_ah_attr address{};
  address.port_num = parameters.port.value();
  address.sl = parameters.service_level.value();
  address.dlid = remote.lid.value();
  const bool other_subnet =
      queue_pair.local.address.subnet_prefix() != remote.address.subnet_prefix();
  if (remote.link_layer == link_layer::ethernet || other_subnet) {
    address.is_global = 1;
    address.grh.dgid = remote.address.native();
    address.grh.sgid_index = parameters.local_gid_index.value();
    address.grh.hop_limit = parameters.hop_limit.value();
    address.grh.traffic_class = parameters.traffic_class.value();
  }
  return address;
}

const char* usual_cause_at_rtr(int errnum) noexcept {
  switch (errnum) {
    case ETIMEDOUT:
    case ENETUNREACH:
    case EHOSTUNREACH:
      return "the peer's GID or LID does not resolve: check that its address is reachable from "
             "this "
             "port (ping the IP address behind the GID), and that it is the peer's present one";
    case EINVAL:
      return "usually the GID index, the path MTU (above a port's active MTU) or the port number";
    default:
      return nullptr;
  }
}

}  // namespace

result<void> connect(const queue_pair_data& queue_pair, const endpoint& remote) noexcept {
  ibv_qp* const native = queue_pair.owner.native();
  if (native == nullptr)
    return error(error_kind::invalid_input, "handshake",
                 "this queue pair was moved from, or has had its handshake");
  VERBSPP_TRYV(check_compatible(queue_pair.local, remote));
  VERBSPP_TRY(mtu, agree_on_mtu(queue_pair, remote));
  const connection_parameters& parameters = queue_pair.parameters;
  const endpoint& local = queue_pair.local;

  using enum queue_pair_state;
  const int receiving =
      modification(init, ready_to_receive)
          .set(IBV_QP_AV, &ibv_qp_attr::ah_attr, address_of(queue_pair, remote))
          .set(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu, mtu.native())
          .set(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num, remote.number.value())
          .set(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn,
               parameters.receive_psn.value_or(remote.send_psn).value())
          .set(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic,
               std::min(local.reads_as_target, remote.reads_as_initiator).value())
          .set(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer, parameters.min_rnr_timer.code())
          .apply(native);
  if (receiving != 0)
    return error::from_errno(receiving, "modify INIT -> RTR", usual_cause_at_rtr(receiving));

  const int sending =
      modification(ready_to_receive, ready_to_send)
          .set(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn, local.send_psn.value())
          .set(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout, parameters.ack_timeout.code())
          .set(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt, parameters.retries.value())
          .set(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry, parameters.rnr_retries.code())
          .set(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic,
               std::min(local.reads_as_initiator, remote.reads_as_target).value())
          .apply(native);
  if (sending != 0)
    return error::from_errno(sending, "modify RTR -> RTS",
                             sending == EINVAL
                                 ? "usually a timeout, retry count or read depth that the device "
                                   "does not take"
                                 : nullptr);
  return success();
}

}  // namespace verbspp::detail
