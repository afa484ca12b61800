// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace softverbs::faults {

/// The way in which a verb reports an error.
enum class convention : std::uint8_t {
  returns_errno,
  minus_one,  ///< with errno set
  null,       ///< with errno set
  negative_errno,
  reregistration,  ///< a code of ibv_rereg_mr_err_code, with errno set
};

struct verb {
  std::string_view name;
  convention reports;
};

/// The verbs that faults can affect, usually under the names by which programs call them, even if
/// verbs.h implements a name by calling another function. `ibv_create_srq` includes
/// ibv_create_srq_ex, and `ibv_create_qp` includes ibv_create_qp_ex with IBV_QP_INIT_ATTR_PD only.
inline constexpr std::array verbs{
    verb{"ibv_advise_mr", convention::returns_errno},
    verb{"ibv_alloc_dm", convention::null},
    verb{"ibv_alloc_mw", convention::null},
    verb{"ibv_alloc_parent_domain", convention::null},
    verb{"ibv_alloc_pd", convention::null},
    verb{"ibv_alloc_td", convention::null},
    verb{"ibv_attach_mcast", convention::returns_errno},
    verb{"ibv_bind_mw", convention::returns_errno},
    verb{"ibv_close_device", convention::minus_one},
    verb{"ibv_close_xrcd", convention::returns_errno},
    verb{"ibv_create_ah", convention::null},
    verb{"ibv_create_ah_from_wc", convention::null},
    verb{"ibv_create_comp_channel", convention::null},
    verb{"ibv_create_cq", convention::null},
    verb{"ibv_create_cq_ex", convention::null},
    verb{"ibv_create_flow", convention::null},
    verb{"ibv_create_qp", convention::null},
    verb{"ibv_create_qp_ex", convention::null},
    verb{"ibv_create_rwq_ind_table", convention::null},
    verb{"ibv_create_srq", convention::null},
    verb{"ibv_create_wq", convention::null},
    verb{"ibv_dealloc_mw", convention::returns_errno},
    verb{"ibv_dealloc_pd", convention::returns_errno},
    verb{"ibv_dealloc_td", convention::returns_errno},
    verb{"ibv_dereg_mr", convention::returns_errno},
    verb{"ibv_destroy_ah", convention::returns_errno},
    verb{"ibv_destroy_comp_channel", convention::returns_errno},
    verb{"ibv_destroy_cq", convention::returns_errno},
    verb{"ibv_destroy_flow", convention::returns_errno},
    verb{"ibv_destroy_qp", convention::returns_errno},
    verb{"ibv_destroy_rwq_ind_table", convention::returns_errno},
    verb{"ibv_destroy_srq", convention::returns_errno},
    verb{"ibv_destroy_wq", convention::returns_errno},
    verb{"ibv_detach_mcast", convention::returns_errno},
    verb{"ibv_free_dm", convention::returns_errno},
    verb{"ibv_get_async_event", convention::minus_one},
    verb{"ibv_get_cq_event", convention::minus_one},
    verb{"ibv_get_device_index", convention::minus_one},
    verb{"ibv_get_device_list", convention::null},
    verb{"ibv_get_device_name", convention::null},
    verb{"ibv_get_pkey_index", convention::minus_one},
    verb{"ibv_import_device", convention::null},
    verb{"ibv_import_dm", convention::null},
    verb{"ibv_import_mr", convention::null},
    verb{"ibv_import_pd", convention::null},
    verb{"ibv_init_ah_from_wc", convention::minus_one},
    verb{"ibv_memcpy_from_dm", convention::returns_errno},
    verb{"ibv_memcpy_to_dm", convention::returns_errno},
    verb{"ibv_modify_qp", convention::returns_errno},
    verb{"ibv_modify_srq", convention::returns_errno},
    verb{"ibv_modify_wq", convention::returns_errno},
    verb{"ibv_next_poll", convention::returns_errno},
    verb{"ibv_open_device", convention::null},
    verb{"ibv_open_qp", convention::null},
    verb{"ibv_open_xrcd", convention::null},
    verb{"ibv_poll_cq", convention::negative_errno},
    verb{"ibv_post_recv", convention::returns_errno},
    verb{"ibv_post_send", convention::returns_errno},
    verb{"ibv_post_srq_recv", convention::returns_errno},
    verb{"ibv_post_wq_recv", convention::returns_errno},
    verb{"ibv_qp_to_qp_ex", convention::null},
    verb{"ibv_query_device", convention::returns_errno},
    verb{"ibv_query_device_ex", convention::returns_errno},
    verb{"ibv_query_ece", convention::returns_errno},
    verb{"ibv_query_gid", convention::minus_one},
    verb{"ibv_query_gid_ex", convention::returns_errno},
    verb{"ibv_query_gid_table", convention::negative_errno},
    verb{"ibv_query_gid_type", convention::minus_one},
    verb{"ibv_query_pkey", convention::minus_one},
    verb{"ibv_query_port", convention::returns_errno},
    verb{"ibv_query_qp", convention::returns_errno},
    verb{"ibv_query_rt_values_ex", convention::returns_errno},
    verb{"ibv_query_srq", convention::returns_errno},
    verb{"ibv_reg_dm_mr", convention::null},
    verb{"ibv_reg_dmabuf_mr", convention::null},
    verb{"ibv_reg_mr", convention::null},
    verb{"ibv_reg_mr_iova", convention::null},
    verb{"ibv_req_notify_cq", convention::returns_errno},
    verb{"ibv_rereg_mr", convention::reregistration},
    verb{"ibv_resize_cq", convention::returns_errno},
    verb{"ibv_resolve_eth_l2_from_gid", convention::minus_one},
    verb{"ibv_set_ece", convention::returns_errno},
    verb{"ibv_start_poll", convention::returns_errno},
    verb{"ibv_wr_complete", convention::returns_errno},
};

/// Returns the index of a verb in `verbs`, or the size of `verbs` if the verb isn't listed.
constexpr std::size_t find(std::string_view name) noexcept {
  std::size_t at = 0;
  while (at < verbs.size() && verbs[at].name != name) ++at;
  return at;
}

/// Returns the index of a verb in `verbs`. If the verb isn't listed, the call doesn't compile.
consteval std::size_t number_of(std::string_view name) {
  const std::size_t number = find(name);
  return number < verbs.size() ? number : throw "not listed";
}

}  // namespace softverbs::faults
