// SPDX-License-Identifier: Apache-2.0
// The implementation of ibv_modify_qp and ibv_query_qp.
#include "base/capability.hpp"
#include "queue_pair/queue_pair.hpp"
#include "queue_pair/state_table.hpp"

#include <cerrno>

namespace softverbs {
namespace {

/// True for a controlled Q_Key, which only a thread with CAP_NET_RAW may set.
bool is_controlled_key(std::uint32_t qkey) noexcept { return qkey >> 31 != 0; }

/// Removes from `mask` the attributes of the half of a connection that an XRC queue pair doesn't
/// have. The kernel ignores them, too, so programs needn't treat XRC queue pairs differently.
int of_its_half(ibv_qp_type type, int mask) noexcept {
  switch (type) {
    case IBV_QPT_XRC_SEND:
      return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    case IBV_QPT_XRC_RECV:
      return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
    default:
      return mask;
  }
}

}  // namespace

bool queue_pair::takes_mtu(ibv_mtu mtu) const noexcept {
  return mtu >= IBV_MTU_256 && mtu <= device().port(attributes_.port_num).mtu;
}

int queue_pair::check_values(const ibv_qp_attr& asked, int mask) const noexcept {
  const auto given = [mask](int attribute) { return (mask & attribute) != 0; };
  if (given(IBV_QP_CUR_STATE) && asked.cur_qp_state != now_in()) return EINVAL;
  if (given(IBV_QP_PORT) && !device().has_port(asked.port_num)) return EINVAL;
  if (given(IBV_QP_PORT) && is_raw() && !device().is_ethernet(asked.port_num)) return EINVAL;
  // The device can't limit the rate of sends.
  if (given(IBV_QP_RATE_LIMIT)) return EOPNOTSUPP;
  if (given(IBV_QP_PKEY_INDEX) && asked.pkey_index != 0) return EINVAL;
  if (given(IBV_QP_PATH_MTU) && !takes_mtu(asked.path_mtu)) return EINVAL;
  if (given(IBV_QP_TIMEOUT) && asked.timeout > 31) return EINVAL;
  if (given(IBV_QP_RETRY_CNT) && asked.retry_cnt > 7) return EINVAL;
  if (given(IBV_QP_RNR_RETRY) && asked.rnr_retry > 7) return EINVAL;
  if (given(IBV_QP_MIN_RNR_TIMER) && asked.min_rnr_timer > 31) return EINVAL;
  if (given(IBV_QP_MAX_QP_RD_ATOMIC) && asked.max_rd_atomic > device().most().outstanding_reads)
    return EINVAL;
  if (given(IBV_QP_MAX_DEST_RD_ATOMIC) &&
      asked.max_dest_rd_atomic > device().most().outstanding_reads)
    return EINVAL;
  // As in the kernel, in the transition to RTR, the path must begin at the queue pair's port.
  if (given(IBV_QP_AV) && given(IBV_QP_STATE) && asked.qp_state == IBV_QPS_RTR &&
      asked.ah_attr.port_num != attributes_.port_num)
    return EINVAL;
  if (given(IBV_QP_PATH_MIG_STATE) && asked.path_mig_state > IBV_MIG_ARMED) return EINVAL;
  if (given(IBV_QP_ALT_PATH)) {
    // As in the kernel, path migration is for InfiniBand only.
    if (is_on_ethernet()) return EINVAL;
    route alternate;
    if (!device().has_port(asked.alt_port_num) || asked.alt_pkey_index != 0 ||
        asked.alt_timeout > 31)
      return EINVAL;
    if (const int error = find_route(owner_->device(), asked.alt_ah_attr, alternate)) return error;
  }
  return 0;
}

int queue_pair::modify(const ibv_qp_attr& asked, int given) {
  const int mask = of_its_half(qp_type, given);
  const ibv_qp_state from = now_in();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? asked.qp_state : from;
  const bool new_path = (mask & IBV_QP_AV) != 0;
  if ((mask & IBV_QP_QKEY) != 0 && is_controlled_key(asked.qkey) && !may_send_raw()) return EPERM;
  // The kernel treats a new path as a change of the port, too, except in the transition to RTR.
  const int understood = new_path && to != IBV_QPS_RTR ? mask | IBV_QP_PORT : mask;
  if (!transition_is_valid(qp_type, from, to, understood)) return EINVAL;
  // Until the send queue is drained, attributes can't be changed, and sending can't resume.
  if (from == IBV_QPS_SQD && (to == IBV_QPS_SQD || to == IBV_QPS_RTS) && !requests.drained())
    return EINVAL;
  if (const int error = check_values(asked, mask)) return error;
  route way;
  if (new_path)
    if (const int error = find_route(owner_->device(), asked.ah_attr, way)) return error;

  // From here on, nothing can fail.
  if (new_path) route_ = way;
  apply(asked, mask);
  if (new_path) attributes_.port_num = asked.ah_attr.port_num;
  enter(to);
  find_here();
  if (to == IBV_QPS_RTR) asks_peer_ = is_connected() && !is_of_xrc();
  // The peer's tables are looked up now only if the peer is in this process. A connection to
  // another process is opened when there is something to send.
  if (attributes_.dest_qp_num >> wire::index_bits == wire().slot()) find_peer();
  offer();
  return 0;
}

void queue_pair::apply(const ibv_qp_attr& asked, int mask) {
  const auto take = [&](int attribute, auto member) {
    if ((mask & attribute) != 0) attributes_.*member = asked.*member;
  };
  take(IBV_QP_EN_SQD_ASYNC_NOTIFY, &ibv_qp_attr::en_sqd_async_notify);
  take(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  if (!device().description().has_atomics)
    attributes_.qp_access_flags &= ~unsigned{IBV_ACCESS_REMOTE_ATOMIC};
  take(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  take(IBV_QP_PORT, &ibv_qp_attr::port_num);
  take(IBV_QP_QKEY, &ibv_qp_attr::qkey);
  take(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  take(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  take(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  take(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  take(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  take(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  take(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  take(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  take(IBV_QP_PATH_MIG_STATE, &ibv_qp_attr::path_mig_state);
  take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_ah_attr);
  take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_pkey_index);
  take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_port_num);
  take(IBV_QP_ALT_PATH, &ibv_qp_attr::alt_timeout);
  // These numbers have 24 bits on the wire; drivers ignore the upper bits.
  if ((mask & IBV_QP_DEST_QPN) != 0) attributes_.dest_qp_num = asked.dest_qp_num & psn_mask;
  if ((mask & IBV_QP_RQ_PSN) != 0) responses.expect_psn(asked.rq_psn & psn_mask);
  if ((mask & IBV_QP_SQ_PSN) != 0) requests.set_psn(asked.sq_psn & psn_mask);
}

void queue_pair::enter(ibv_qp_state next) {
  const ibv_qp_state before = now_in();
  attributes_.qp_state = next;
  switch (next) {
    case IBV_QPS_RESET: {
      engine().set_deadline(*this, 0);
      // Polling a completion frees the space of its request. This must not happen after the reset,
      // so the remaining completions are removed first.
      forget_completions();
      requests.reset();
      swapped_.reset();
      responses.reset();
      regions().forget(*this);
      route_ = {};
      established_ = overrun_ = asks_peer_ = false;
      peer_tables_ = nullptr;
      set_peer(nullptr);
      const ibv_qp_cap capacities = attributes_.cap;
      attributes_ = {};
      attributes_.cap = capacities;
      break;
    }
    case IBV_QPS_ERR:
      enter_error();
      break;
    case IBV_QPS_RTS:
      // The requests that were posted after the failed one must be flushed, even though sending
      // resumes now.
      if (before == IBV_QPS_SQE) requests.flush();
      attributes_.en_sqd_async_notify = 0;
      [[fallthrough]];
    default:
      if (next != before) engine().schedule(*this);
  }
}

void queue_pair::query(ibv_qp_attr& attributes, ibv_qp_init_attr& initial) const noexcept {
  attributes = attributes_;
  attributes.cur_qp_state = attributes_.qp_state;
  attributes.rq_psn = responses.expected_psn();
  attributes.sq_psn = requests.psn();
  attributes.sq_draining =
      static_cast<std::uint8_t>(now_in() == IBV_QPS_SQD && !requests.drained());
  attributes.en_sqd_async_notify = 0;
  initial = initial_;
}

}  // namespace softverbs
