// SPDX-License-Identifier: Apache-2.0
// Tests each verb that can be made to fail, using the device's own table of verbs.
#include "catch.hpp"
#include "faults/faults.hpp"
#include "support/fabric.hpp"
#include "support/xrc.hpp"
#include <softverbs/softverbs.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <map>
#include <string>

// No public header declares this function, but the programs in rdma-core use it.
extern "C" int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index,
                                  int* type);

namespace {

using softverbs::faults::convention;

/// The objects on which the verbs are called. When the device is closed, they are destroyed,
/// whatever state they are in.
struct world {
  world() {
    domain = ibv_alloc_pd(verbs);
    channel = ibv_create_comp_channel(verbs);
    ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
    ::fcntl(verbs->async_fd, F_SETFL, O_NONBLOCK);
    spare_queue = ibv_create_cq(verbs, 4, nullptr, nullptr, 0);
    ibv_cq_init_attr_ex attributes{};
    attributes.cqe = 4;
    extended = ibv_create_cq_ex(verbs, &attributes);
    queue = ibv_cq_ex_to_cq(extended);
    const int rights = int{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_ON_DEMAND;
    region = ibv_reg_mr(domain, memory, sizeof(memory), rights);
    ibv_qp_init_attr_ex wanted = asked(IBV_QPT_RC);
    pair = ibv_create_qp_ex(verbs, &wanted);
    wanted = asked(IBV_QPT_UD);
    datagrams = ibv_create_qp_ex(verbs, &wanted);
    ibv_query_gid(verbs, 1, on_ethernet() ? 3 : 0, &path.grh.dgid);
    path.port_num = 1;
    path.is_global = 1;
    path.grh.sgid_index = on_ethernet() ? 3 : 0;
    handle = ibv_create_ah(domain, &path);
    ibv_srq_init_attr receives{};
    receives.attr = {4, 1, 0};
    shared = ibv_create_srq(domain, &receives);
    window = ibv_alloc_mw(domain, IBV_MW_TYPE_1);
    ibv_td_init_attr one_thread{};
    thread = ibv_alloc_td(verbs, &one_thread);
    ibv_alloc_dm_attr eight_bytes{8, 0, 0};
    device_memory = ibv_alloc_dm(verbs, &eight_bytes);
    exclusive = open_domain(verbs, -1, O_CREAT);
    busy = open_domain(verbs, -1, O_CREAT);
    target = create_target(busy);
    if (on_ethernet()) make_work_queues();
  }
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world() {
    softverbs_reset_faults();
    ibv_close_device(verbs);
  }

  ibv_qp_init_attr_ex asked(ibv_qp_type type) const {
    ibv_qp_init_attr_ex result{};
    result.send_cq = result.recv_cq = queue;
    result.qp_type = type;
    result.cap = {4, 4, 1, 1, 0};
    result.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    result.pd = domain;
    result.send_ops_flags = IBV_QP_EX_WITH_SEND;
    return result;
  }

  void make_work_queues() {
    ibv_wq_init_attr attributes = receiving();
    spare_work_queue = ibv_create_wq(verbs, &attributes);
    work_queue = ibv_create_wq(verbs, &attributes);
    ibv_rwq_ind_table_init_attr one{0, &work_queue, 0};
    table = ibv_create_rwq_ind_table(verbs, &one);
  }

  ibv_wq_init_attr receiving() const {
    ibv_wq_init_attr result{};
    result.max_wr = result.max_sge = 1;
    result.pd = domain;
    result.cq = queue;
    return result;
  }

  ibv_context* verbs = open_device("soft0");
  ibv_pd* domain = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* spare_queue = nullptr;
  ibv_cq_ex* extended = nullptr;
  ibv_cq* queue = nullptr;
  char memory[64]{};
  ibv_mr* region = nullptr;
  ibv_qp* pair = nullptr;
  ibv_qp* datagrams = nullptr;
  ibv_ah_attr path{};
  ibv_ah* handle = nullptr;
  ibv_srq* shared = nullptr;
  ibv_mw* window = nullptr;
  ibv_td* thread = nullptr;
  ibv_dm* device_memory = nullptr;
  ibv_xrcd* exclusive = nullptr;
  ibv_xrcd* busy = nullptr;
  ibv_qp* target = nullptr;
  // Null on InfiniBand, which has no work queues.
  ibv_wq* spare_work_queue = nullptr;
  ibv_wq* work_queue = nullptr;
  ibv_rwq_ind_table* table = nullptr;
  /// A flow rule that the device has not created.
  ibv_flow no_flow{0, verbs, 0};
};

/// A call to a verb. It returns the verb's result. If the result is a pointer, it returns 0 for
/// null, and 1 for any other pointer.
using call = std::function<long(world&)>;

template <typename Object>
long is_there(const Object* object) {
  return object != nullptr ? 1 : 0;
}

/// Posts an empty request, which must fail: the device must return this request as the one that
/// failed.
template <typename Object, typename Request>
long post_one(int (*post)(Object*, Request*, Request**), Object* to) {
  Request request{};
  Request* bad = nullptr;
  const int error = post(to, &request, &bad);
  CHECK(bad == &request);
  return error;
}

const std::map<std::string, call>& calls() {
  static const std::map<std::string, call> result{
      {"ibv_advise_mr",
       [](world& w) {
         ibv_sge piece{reinterpret_cast<std::uintptr_t>(w.memory), 8, w.region->lkey};
         return ibv_advise_mr(w.domain, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &piece, 1);
       }},
      {"ibv_alloc_dm",
       [](world& w) {
         ibv_alloc_dm_attr attributes{8, 0, 0};
         return is_there(ibv_alloc_dm(w.verbs, &attributes));
       }},
      {"ibv_alloc_mw", [](world& w) { return is_there(ibv_alloc_mw(w.domain, IBV_MW_TYPE_1)); }},
      {"ibv_alloc_parent_domain",
       [](world& w) {
         ibv_parent_domain_init_attr attributes{};
         attributes.pd = w.domain;
         return is_there(ibv_alloc_parent_domain(w.verbs, &attributes));
       }},
      {"ibv_alloc_pd", [](world& w) { return is_there(ibv_alloc_pd(w.verbs)); }},
      {"ibv_alloc_td",
       [](world& w) {
         ibv_td_init_attr attributes{};
         return is_there(ibv_alloc_td(w.verbs, &attributes));
       }},
      {"ibv_attach_mcast",
       [](world& w) { return ibv_attach_mcast(w.datagrams, &w.path.grh.dgid, 0); }},
      {"ibv_bind_mw",
       [](world& w) {
         ibv_mw_bind binding{};
         binding.bind_info.mr = w.region;
         return ibv_bind_mw(w.pair, w.window, &binding);
       }},
      {"ibv_close_device",
       [](world& w) {
         // Closes a separate context, because `world` closes its own context itself.
         static ibv_context* other = nullptr;
         if (other == nullptr) other = open_device("soft0");
         const int error = ibv_close_device(other);
         if (error == 0) other = nullptr;
         static_cast<void>(w);
         return error;
       }},
      {"ibv_close_xrcd", [](world& w) { return ibv_close_xrcd(w.exclusive); }},
      {"ibv_create_ah", [](world& w) { return is_there(ibv_create_ah(w.domain, &w.path)); }},
      {"ibv_create_ah_from_wc",
       [](world& w) {
         ibv_wc completion{};
         ibv_grh header{};
         return is_there(ibv_create_ah_from_wc(w.domain, &completion, &header, 1));
       }},
      {"ibv_create_comp_channel",
       [](world& w) { return is_there(ibv_create_comp_channel(w.verbs)); }},
      {"ibv_create_cq",
       [](world& w) { return is_there(ibv_create_cq(w.verbs, 4, nullptr, nullptr, 0)); }},
      {"ibv_create_cq_ex",
       [](world& w) {
         ibv_cq_init_attr_ex attributes{};
         attributes.cqe = 4;
         return is_there(ibv_create_cq_ex(w.verbs, &attributes));
       }},
      {"ibv_create_flow",
       [](world& w) {
         ibv_flow_attr attributes{};
         attributes.port = 1;
         return is_there(ibv_create_flow(w.pair, &attributes));
       }},
      {"ibv_create_qp",
       [](world& w) {
         ibv_qp_init_attr attributes = pair_with(w.queue);
         return is_there(ibv_create_qp(w.domain, &attributes));
       }},
      {"ibv_create_qp_ex",
       [](world& w) {
         ibv_qp_init_attr_ex attributes = w.asked(IBV_QPT_RC);
         return is_there(ibv_create_qp_ex(w.verbs, &attributes));
       }},
      {"ibv_create_rwq_ind_table",
       [](world& w) {
         ibv_rwq_ind_table_init_attr attributes{0, &w.work_queue, 0};
         return is_there(ibv_create_rwq_ind_table(w.verbs, &attributes));
       }},
      {"ibv_create_srq",
       [](world& w) {
         ibv_srq_init_attr attributes{};
         attributes.attr.max_wr = attributes.attr.max_sge = 1;
         return is_there(ibv_create_srq(w.domain, &attributes));
       }},
      {"ibv_create_wq",
       [](world& w) {
         ibv_wq_init_attr attributes = w.receiving();
         return is_there(ibv_create_wq(w.verbs, &attributes));
       }},
      {"ibv_dealloc_mw", [](world& w) { return ibv_dealloc_mw(w.window); }},
      {"ibv_dealloc_pd", [](world& w) { return ibv_dealloc_pd(w.domain); }},
      {"ibv_dealloc_td", [](world& w) { return ibv_dealloc_td(w.thread); }},
      {"ibv_dereg_mr", [](world& w) { return ibv_dereg_mr(w.region); }},
      {"ibv_destroy_ah", [](world& w) { return ibv_destroy_ah(w.handle); }},
      {"ibv_destroy_comp_channel", [](world& w) { return ibv_destroy_comp_channel(w.channel); }},
      {"ibv_destroy_cq", [](world& w) { return ibv_destroy_cq(w.spare_queue); }},
      {"ibv_destroy_flow", [](world& w) { return ibv_destroy_flow(&w.no_flow); }},
      {"ibv_destroy_qp", [](world& w) { return ibv_destroy_qp(w.pair); }},
      {"ibv_destroy_rwq_ind_table", [](world& w) { return ibv_destroy_rwq_ind_table(w.table); }},
      {"ibv_destroy_srq", [](world& w) { return ibv_destroy_srq(w.shared); }},
      {"ibv_destroy_wq", [](world& w) { return ibv_destroy_wq(w.spare_work_queue); }},
      {"ibv_detach_mcast",
       [](world& w) { return ibv_detach_mcast(w.datagrams, &w.path.grh.dgid, 0); }},
      {"ibv_free_dm", [](world& w) { return ibv_free_dm(w.device_memory); }},
      {"ibv_get_async_event",
       [](world& w) {
         ibv_async_event event{};
         return ibv_get_async_event(w.verbs, &event);
       }},
      {"ibv_get_cq_event",
       [](world& w) {
         ibv_cq* queue = nullptr;
         void* context = nullptr;
         return ibv_get_cq_event(w.channel, &queue, &context);
       }},
      {"ibv_get_device_index", [](world& w) { return ibv_get_device_index(w.verbs->device); }},
      {"ibv_get_device_list",
       [](world&) {
         ibv_device** list = ibv_get_device_list(nullptr);
         ibv_free_device_list(list);
         return list != nullptr ? 1L : 0L;
       }},
      {"ibv_get_device_name",
       [](world& w) { return is_there(ibv_get_device_name(w.verbs->device)); }},
      {"ibv_get_pkey_index", [](world& w) { return ibv_get_pkey_index(w.verbs, 1, 0xffff); }},
      {"ibv_import_device",
       [](world& w) {
         // If the import succeeds, the new context owns the duplicate.
         const int duplicate = ::fcntl(w.verbs->cmd_fd, F_DUPFD_CLOEXEC, 0);
         ibv_context* const other = ibv_import_device(duplicate);
         const int error = errno;
         if (other != nullptr)
           ibv_close_device(other);
         else
           ::close(duplicate);
         errno = error;
         return is_there(other);
       }},
      {"ibv_import_dm", [](world& w) { return is_there(ibv_import_dm(w.verbs, 1)); }},
      {"ibv_import_mr", [](world& w) { return is_there(ibv_import_mr(w.domain, 1)); }},
      {"ibv_import_pd", [](world& w) { return is_there(ibv_import_pd(w.verbs, 1)); }},
      {"ibv_init_ah_from_wc",
       [](world& w) {
         ibv_wc completion{};
         ibv_grh header{};
         return ibv_init_ah_from_wc(w.verbs, 1, &completion, &header, &w.path);
       }},
      {"ibv_memcpy_from_dm",
       [](world& w) { return ibv_memcpy_from_dm(w.memory, w.device_memory, 0, 8); }},
      {"ibv_memcpy_to_dm",
       [](world& w) { return ibv_memcpy_to_dm(w.device_memory, 0, w.memory, 8); }},
      {"ibv_modify_qp",
       [](world& w) {
         ibv_qp_attr attributes{};
         attributes.qp_state = IBV_QPS_RESET;
         return ibv_modify_qp(w.pair, &attributes, IBV_QP_STATE);
       }},
      {"ibv_modify_srq",
       [](world& w) {
         ibv_srq_attr attributes{};
         return ibv_modify_srq(w.shared, &attributes, IBV_SRQ_LIMIT);
       }},
      {"ibv_modify_wq",
       [](world& w) {
         ibv_wq_attr attributes{};
         attributes.attr_mask = IBV_WQ_ATTR_STATE;
         attributes.wq_state = IBV_WQS_RDY;
         return ibv_modify_wq(w.work_queue, &attributes);
       }},
      {"ibv_next_poll", [](world& w) { return ibv_next_poll(w.extended); }},
      {"ibv_open_device",
       [](world& w) {
         ibv_context* opened = ibv_open_device(w.verbs->device);
         const int error = errno;
         if (opened != nullptr) ibv_close_device(opened);
         errno = error;
         return is_there(opened);
       }},
      {"ibv_open_qp",
       [](world& w) {
         ibv_qp_open_attr attributes = to_open(w.target, w.busy);
         return is_there(ibv_open_qp(w.verbs, &attributes));
       }},
      {"ibv_open_xrcd", [](world& w) { return is_there(open_domain(w.verbs, -1, O_CREAT)); }},
      {"ibv_poll_cq",
       [](world& w) {
         ibv_wc completion{};
         return ibv_poll_cq(w.queue, 1, &completion);
       }},
      {"ibv_post_recv", [](world& w) { return post_one(ibv_post_recv, w.pair); }},
      {"ibv_post_send", [](world& w) { return post_one(ibv_post_send, w.pair); }},
      {"ibv_post_srq_recv", [](world& w) { return post_one(ibv_post_srq_recv, w.shared); }},
      {"ibv_post_wq_recv", [](world& w) { return post_one(ibv_post_wq_recv, w.work_queue); }},
      {"ibv_qp_to_qp_ex", [](world& w) { return is_there(ibv_qp_to_qp_ex(w.pair)); }},
      {"ibv_query_device",
       [](world& w) {
         ibv_device_attr attributes{};
         return ibv_query_device(w.verbs, &attributes);
       }},
      {"ibv_query_device_ex",
       [](world& w) {
         ibv_device_attr_ex attributes{};
         return ibv_query_device_ex(w.verbs, nullptr, &attributes);
       }},
      {"ibv_query_ece",
       [](world& w) {
         ibv_ece options{};
         return ibv_query_ece(w.pair, &options);
       }},
      {"ibv_query_gid",
       [](world& w) {
         ibv_gid gid{};
         return ibv_query_gid(w.verbs, 1, 0, &gid);
       }},
      {"ibv_query_gid_ex",
       [](world& w) {
         ibv_gid_entry entry{};
         return ibv_query_gid_ex(w.verbs, 1, 0, &entry, 0);
       }},
      {"ibv_query_gid_table",
       [](world& w) {
         ibv_gid_entry entries[16];
         return ibv_query_gid_table(w.verbs, entries, 16, 0);
       }},
      {"ibv_query_gid_type",
       [](world& w) {
         int type = 0;
         return ibv_query_gid_type(w.verbs, 1, 0, &type);
       }},
      {"ibv_query_pkey",
       [](world& w) {
         __be16 pkey = 0;
         return ibv_query_pkey(w.verbs, 1, 0, &pkey);
       }},
      {"ibv_query_port",
       [](world& w) {
         ibv_port_attr attributes{};
         return ibv_query_port(w.verbs, 1, &attributes);
       }},
      {"ibv_query_qp",
       [](world& w) {
         ibv_qp_attr attributes{};
         ibv_qp_init_attr initial{};
         return ibv_query_qp(w.pair, &attributes, IBV_QP_STATE, &initial);
       }},
      {"ibv_query_srq",
       [](world& w) {
         ibv_srq_attr attributes{};
         return ibv_query_srq(w.shared, &attributes);
       }},
      {"ibv_query_rt_values_ex",
       [](world& w) {
         ibv_values_ex values{};
         return ibv_query_rt_values_ex(w.verbs, &values);
       }},
      {"ibv_reg_dm_mr",
       [](world& w) {
         return is_there(ibv_reg_dm_mr(w.domain, w.device_memory, 0, 8, IBV_ACCESS_ZERO_BASED));
       }},
      {"ibv_reg_dmabuf_mr",
       [](world& w) { return is_there(ibv_reg_dmabuf_mr(w.domain, 0, 1, 0, 0, 0)); }},
      {"ibv_reg_mr",
       [](world& w) {
         volatile int access =
             0;  // not constant: the macro ibv_reg_mr treats constants differently
         const int rights = access;
         return is_there(ibv_reg_mr(w.domain, w.memory, sizeof(w.memory), rights));
       }},
      {"ibv_reg_mr_iova",
       [](world& w) {
         constexpr std::uint64_t page = 4096;
         const std::uint64_t iova = reinterpret_cast<std::uintptr_t>(w.memory) % page + page;
         return is_there(ibv_reg_mr_iova(w.domain, w.memory, sizeof(w.memory), iova, 0));
       }},
      {"ibv_req_notify_cq", [](world& w) { return ibv_req_notify_cq(w.queue, 0); }},
      {"ibv_rereg_mr",
       [](world& w) {
         return ibv_rereg_mr(w.region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                             IBV_ACCESS_LOCAL_WRITE);
       }},
      {"ibv_resize_cq", [](world& w) { return ibv_resize_cq(w.queue, 8); }},
      {"ibv_resolve_eth_l2_from_gid",
       [](world& w) {
         std::uint8_t mac[6]{};
         std::uint16_t vlan = 0;
         return ibv_resolve_eth_l2_from_gid(w.verbs, &w.path, mac, &vlan);
       }},
      {"ibv_set_ece",
       [](world& w) {
         ibv_ece options{};
         return ibv_set_ece(w.pair, &options);
       }},
      {"ibv_start_poll",
       [](world& w) {
         ibv_poll_cq_attr nothing{};
         const int error = ibv_start_poll(w.extended, &nothing);
         return error;
       }},
      {"ibv_wr_complete",
       [](world& w) {
         ibv_qp_ex* build = ibv_qp_to_qp_ex(w.pair);
         ibv_wr_start(build);
         ibv_wr_send(build);
         return ibv_wr_complete(build);
       }},
  };
  return result;
}

/// Checks that the call has reported exactly this error, using the convention that its verb
/// documents.
void told(convention reports, int error, long returned, int left_in_errno) {
  switch (reports) {
    case convention::returns_errno:
      CHECK(returned == error);
      CHECK(left_in_errno == 0);
      return;
    case convention::negative_errno:
      CHECK(returned == -error);
      CHECK(left_in_errno == 0);
      return;
    case convention::null:
      CHECK(returned == 0);
      break;
    case convention::minus_one:
      CHECK(returned == -1);
      break;
    case convention::reregistration:
      CHECK(returned == IBV_REREG_MR_ERR_CMD);
      break;
  }
  CHECK(left_in_errno == error);
}

/// Returns true for verbs that are called on a work queue, or on a table of work queues. InfiniBand
/// has neither.
bool is_of_work_queues(const std::string& verb) {
  return verb == "ibv_destroy_rwq_ind_table" || verb == "ibv_destroy_wq" ||
         verb == "ibv_modify_wq" || verb == "ibv_post_wq_recv";
}

/// An errno that no verb returns unless a fault requests it.
constexpr int unheard_of = EXDEV;

}  // namespace

TEST_CASE("each verb can be made to fail once and reports the failure by its own convention",
          "[in front]") {
  for (const auto& [verb, reports] : softverbs::faults::verbs) {
    const std::string name(verb);
    INFO(name);
    REQUIRE(calls().count(name) == 1);
    if (!on_ethernet() && is_of_work_queues(name)) continue;
    const call& make = calls().at(name);
    world all;
    REQUIRE(softverbs_inject((name + "=EXDEV").c_str()) == 0);
    errno = 0;
    const long returned = make(all);
    told(reports, unheard_of, returned, errno);
    CHECK(softverbs_faults_struck() == 1);
    // These calls are not repeated: `post_one` requires a failure, but ibv_post_srq_recv would
    // succeed.
    if (name == "ibv_post_srq_recv" || name == "ibv_post_send" || name == "ibv_post_recv") continue;
    errno = 0;
    const long again = make(all);
    CHECK(again != unheard_of);
    CHECK(again != -unheard_of);
    CHECK(errno != unheard_of);
    CHECK(softverbs_faults_struck() == 1);
  }
}

TEST_CASE("the verbs of a device report EIO after a fatal error", "[in front]") {
  for (const auto& [verb, reports] : softverbs::faults::verbs) {
    const std::string name(verb);
    // These verbs either do not use the device or must work in any case.
    if (name == "ibv_close_device" || name == "ibv_get_device_list" ||
        name == "ibv_get_device_name" || name == "ibv_get_device_index" ||
        name == "ibv_get_async_event" || name == "ibv_qp_to_qp_ex")
      continue;
    if (!on_ethernet() && is_of_work_queues(name)) continue;
    INFO(name);
    world all;
    REQUIRE(softverbs_inject("device-fatal") == 0);
    errno = 0;
    const long returned = calls().at(name)(all);
    told(reports, EIO, returned, errno);
    ibv_async_event event{};
    REQUIRE(ibv_get_async_event(all.verbs, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_DEVICE_FATAL);
    ibv_ack_async_event(&event);
    CHECK(ibv_get_async_event(all.verbs, &event) == -1);
  }
}
