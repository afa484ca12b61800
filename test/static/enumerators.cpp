// SPDX-License-Identifier: Apache-2.0

// The enumerators have the same values as their C counterparts.

#include <verbspp/verbspp.hpp>

#include <infiniband/verbs.h>

#include <type_traits>

namespace {

using namespace verbspp;

template <class Enum, class Native>
consteval bool same(Enum ours, Native native) {
  static_assert(std::is_enum_v<Enum>);
  return static_cast<long long>(ours) == static_cast<long long>(native);
}

static_assert(same(transport::rc, IBV_QPT_RC));
static_assert(same(transport::uc, IBV_QPT_UC));
static_assert(same(transport::ud, IBV_QPT_UD));

static_assert(same(queue_pair_state::reset, IBV_QPS_RESET));
static_assert(same(queue_pair_state::init, IBV_QPS_INIT));
static_assert(same(queue_pair_state::ready_to_receive, IBV_QPS_RTR));
static_assert(same(queue_pair_state::ready_to_send, IBV_QPS_RTS));
static_assert(same(queue_pair_state::send_queue_drained, IBV_QPS_SQD));
static_assert(same(queue_pair_state::send_queue_error, IBV_QPS_SQE));
static_assert(same(queue_pair_state::error, IBV_QPS_ERR));

static_assert(same(access_flag::local_write, IBV_ACCESS_LOCAL_WRITE));
static_assert(same(access_flag::remote_write, IBV_ACCESS_REMOTE_WRITE));
static_assert(same(access_flag::remote_read, IBV_ACCESS_REMOTE_READ));
static_assert(same(access_flag::remote_atomic, IBV_ACCESS_REMOTE_ATOMIC));
static_assert(same(access_flag::window_bind, IBV_ACCESS_MW_BIND));
static_assert(same(access_flag::on_demand, IBV_ACCESS_ON_DEMAND));
static_assert(same(access_flag::relaxed_ordering, IBV_ACCESS_RELAXED_ORDERING));
static_assert(access::local_read.bits == 0);
static_assert(!access::all_remote.intersects(access::on_demand | access::relaxed_ordering |
                                             access::window_bind));
static_assert(same(memory_window_type::type_1, IBV_MW_TYPE_1));
static_assert(same(memory_window_type::type_2, IBV_MW_TYPE_2));
static_assert(same(on_demand_use::send, IBV_ODP_SUPPORT_SEND));
static_assert(same(on_demand_use::receive, IBV_ODP_SUPPORT_RECV));
static_assert(same(on_demand_use::write, IBV_ODP_SUPPORT_WRITE));
static_assert(same(on_demand_use::read, IBV_ODP_SUPPORT_READ));
static_assert(same(on_demand_use::atomic, IBV_ODP_SUPPORT_ATOMIC));
static_assert(same(on_demand_use::shared_receive, IBV_ODP_SUPPORT_SRQ_RECV));
static_assert(access::all_remote.bits ==
              (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));

static_assert(same(port_state::no_change, IBV_PORT_NOP));
static_assert(same(port_state::down, IBV_PORT_DOWN));
static_assert(same(port_state::initializing, IBV_PORT_INIT));
static_assert(same(port_state::armed, IBV_PORT_ARMED));
static_assert(same(port_state::active, IBV_PORT_ACTIVE));
static_assert(same(port_state::active_deferred, IBV_PORT_ACTIVE_DEFER));

static_assert(same(link_layer::infiniband, IBV_LINK_LAYER_INFINIBAND));
static_assert(same(link_layer::ethernet, IBV_LINK_LAYER_ETHERNET));

static_assert(same(gid_type::infiniband, IBV_GID_TYPE_IB));
static_assert(same(gid_type::roce_v1, IBV_GID_TYPE_ROCE_V1));
static_assert(same(gid_type::roce_v2, IBV_GID_TYPE_ROCE_V2));

static_assert(same(async_event_type::completion_queue_error, IBV_EVENT_CQ_ERR));
static_assert(same(async_event_type::queue_pair_fatal, IBV_EVENT_QP_FATAL));
static_assert(same(async_event_type::queue_pair_request_error, IBV_EVENT_QP_REQ_ERR));
static_assert(same(async_event_type::queue_pair_access_error, IBV_EVENT_QP_ACCESS_ERR));
static_assert(same(async_event_type::communication_established, IBV_EVENT_COMM_EST));
static_assert(same(async_event_type::send_queue_drained, IBV_EVENT_SQ_DRAINED));
static_assert(same(async_event_type::path_migrated, IBV_EVENT_PATH_MIG));
static_assert(same(async_event_type::path_migration_error, IBV_EVENT_PATH_MIG_ERR));
static_assert(same(async_event_type::device_fatal, IBV_EVENT_DEVICE_FATAL));
static_assert(same(async_event_type::port_active, IBV_EVENT_PORT_ACTIVE));
static_assert(same(async_event_type::port_error, IBV_EVENT_PORT_ERR));
static_assert(same(async_event_type::lid_change, IBV_EVENT_LID_CHANGE));
static_assert(same(async_event_type::pkey_change, IBV_EVENT_PKEY_CHANGE));
static_assert(same(async_event_type::subnet_manager_change, IBV_EVENT_SM_CHANGE));
static_assert(same(async_event_type::shared_receive_queue_error, IBV_EVENT_SRQ_ERR));
static_assert(same(async_event_type::shared_receive_queue_limit_reached,
                   IBV_EVENT_SRQ_LIMIT_REACHED));
static_assert(same(async_event_type::last_work_request_reached, IBV_EVENT_QP_LAST_WQE_REACHED));
static_assert(same(async_event_type::client_reregister, IBV_EVENT_CLIENT_REREGISTER));
static_assert(same(async_event_type::gid_change, IBV_EVENT_GID_CHANGE));
static_assert(same(async_event_type::work_queue_fatal, IBV_EVENT_WQ_FATAL));

static_assert(same(completion_feature::byte_count, IBV_WC_EX_WITH_BYTE_LEN));
static_assert(same(completion_feature::immediate, IBV_WC_EX_WITH_IMM));
static_assert(same(completion_feature::queue_pair_number, IBV_WC_EX_WITH_QP_NUM));
static_assert(same(completion_feature::source, IBV_WC_EX_WITH_SRC_QP));
static_assert(same(completion_feature::source_lid, IBV_WC_EX_WITH_SLID));
static_assert(same(completion_feature::service_level, IBV_WC_EX_WITH_SL));
static_assert(same(completion_feature::timestamp, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP));
static_assert(same(completion_feature::wall_clock, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK));

static_assert(same(notify_for::every_completion, 0));
static_assert(same(notify_for::solicited_only, 1));

static_assert(same(work_operation::send, IBV_WC_SEND));
static_assert(same(work_operation::rdma_write, IBV_WC_RDMA_WRITE));
static_assert(same(work_operation::rdma_read, IBV_WC_RDMA_READ));
static_assert(same(work_operation::compare_and_swap, IBV_WC_COMP_SWAP));
static_assert(same(work_operation::fetch_and_add, IBV_WC_FETCH_ADD));
static_assert(same(work_operation::bind_memory_window, IBV_WC_BIND_MW));
static_assert(same(work_operation::local_invalidate, IBV_WC_LOCAL_INV));
static_assert(same(work_operation::receive, IBV_WC_RECV));
static_assert(same(work_operation::receive_of_rdma_write, IBV_WC_RECV_RDMA_WITH_IMM));

static_assert(same(work_status::success, IBV_WC_SUCCESS));
static_assert(same(work_status::local_length_error, IBV_WC_LOC_LEN_ERR));
static_assert(same(work_status::local_queue_pair_operation_error, IBV_WC_LOC_QP_OP_ERR));
static_assert(same(work_status::local_ee_context_operation_error, IBV_WC_LOC_EEC_OP_ERR));
static_assert(same(work_status::local_protection_error, IBV_WC_LOC_PROT_ERR));
static_assert(same(work_status::flushed, IBV_WC_WR_FLUSH_ERR));
static_assert(same(work_status::memory_window_bind_error, IBV_WC_MW_BIND_ERR));
static_assert(same(work_status::bad_response_error, IBV_WC_BAD_RESP_ERR));
static_assert(same(work_status::local_access_error, IBV_WC_LOC_ACCESS_ERR));
static_assert(same(work_status::remote_invalid_request_error, IBV_WC_REM_INV_REQ_ERR));
static_assert(same(work_status::remote_access_error, IBV_WC_REM_ACCESS_ERR));
static_assert(same(work_status::remote_operation_error, IBV_WC_REM_OP_ERR));
static_assert(same(work_status::retry_exceeded, IBV_WC_RETRY_EXC_ERR));
static_assert(same(work_status::receiver_not_ready_retry_exceeded, IBV_WC_RNR_RETRY_EXC_ERR));
static_assert(same(work_status::local_rdd_violation_error, IBV_WC_LOC_RDD_VIOL_ERR));
static_assert(same(work_status::remote_invalid_rd_request, IBV_WC_REM_INV_RD_REQ_ERR));
static_assert(same(work_status::remote_aborted, IBV_WC_REM_ABORT_ERR));
static_assert(same(work_status::invalid_ee_context_number, IBV_WC_INV_EECN_ERR));
static_assert(same(work_status::invalid_ee_context_state, IBV_WC_INV_EEC_STATE_ERR));
static_assert(same(work_status::fatal, IBV_WC_FATAL_ERR));
static_assert(same(work_status::response_timeout, IBV_WC_RESP_TIMEOUT_ERR));
static_assert(same(work_status::general_error, IBV_WC_GENERAL_ERR));
static_assert(same(work_status::tag_matching_error, IBV_WC_TM_ERR));
static_assert(same(work_status::tag_matching_rendezvous_incomplete, IBV_WC_TM_RNDV_INCOMPLETE));

static_assert(path_mtu(256).native() == IBV_MTU_256);
static_assert(path_mtu(512).native() == IBV_MTU_512);
static_assert(path_mtu(1024).native() == IBV_MTU_1024);
static_assert(path_mtu(2048).native() == IBV_MTU_2048);
static_assert(path_mtu(4096).native() == IBV_MTU_4096);

// Enumerators do not convert to numbers implicitly. The flags of one set do not convert to those of
// another set.
static_assert(!std::is_convertible_v<transport, int>);
static_assert(!std::is_convertible_v<access_flag, unsigned>);
static_assert(!std::is_convertible_v<unsigned, access_flags>);
static_assert(!std::is_convertible_v<access_flags, unsigned>);
static_assert(!std::is_convertible_v<queue_pair_parameter, access_flags>);
static_assert(!std::is_convertible_v<access_flag, queue_pair_parameter_set>);

template <class Left, class Right>
concept CanBeJoined = requires(Left left, Right right) { left | right; };
static_assert(CanBeJoined<access_flag, access_flag>);
static_assert(CanBeJoined<access_flags, access_flag>);
static_assert(CanBeJoined<access_flag, access_flags>);
static_assert(!CanBeJoined<access_flag, queue_pair_parameter>);
static_assert(!CanBeJoined<access_flags, queue_pair_parameter_set>);
static_assert(!CanBeJoined<access_flags, unsigned>);
static_assert(!CanBeJoined<port_state, port_state>, "not a set of bits");

}  // namespace

// These enumerators exist only in newer versions of libibverbs.
#if defined(VERBSPP_TEST_HAS_ATOMIC_WRITE)
static_assert(operation_traits<atomic_write_operation>::capability == IBV_QP_EX_WITH_ATOMIC_WRITE);
static_assert(same(work_operation::atomic_write, IBV_WC_ATOMIC_WRITE));
#endif
#if defined(VERBSPP_TEST_HAS_FLUSH)
static_assert(operation_traits<flush_operation>::capability == IBV_QP_EX_WITH_FLUSH);
static_assert(same(work_operation::flush, IBV_WC_FLUSH));
static_assert(same(access_flag::flush_global, IBV_ACCESS_FLUSH_GLOBAL));
static_assert(same(access_flag::flush_persistent, IBV_ACCESS_FLUSH_PERSISTENT));
static_assert(same(flush_placement::global, IBV_FLUSH_GLOBAL));
static_assert(same(flush_placement::persistent, IBV_FLUSH_PERSISTENT));
static_assert(same(flush_scope::range, IBV_FLUSH_RANGE));
static_assert(same(flush_scope::region, IBV_FLUSH_MR));
#endif
