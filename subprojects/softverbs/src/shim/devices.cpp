// SPDX-License-Identifier: Apache-2.0
// Open devices, and the functions in the provider's tables that this library replaces.
#include "faults/failing_verbs.hpp"
#include "shim/shim.hpp"
#include "verbs/export.hpp"
#include "verbs/next_library.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#undef ibv_query_port
#undef ibv_get_device_list

namespace softverbs::shim {
namespace {

const provided& theirs_of(const ibv_context* verbs) noexcept {
  return all().contexts.find(verbs)->theirs;
}

int post_send(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr** bad) {
  if (!is_idle()) {
    *bad = request;
    SHIM_FAULT(ibv_post_send, pair->context);
  }
  return theirs_of(pair->context).ops.post_send(pair, request, bad);
}

int post_recv(ibv_qp* pair, ibv_recv_wr* request, ibv_recv_wr** bad) {
  if (!is_idle()) {
    *bad = request;
    SHIM_FAULT(ibv_post_recv, pair->context);
  }
  return theirs_of(pair->context).ops.post_recv(pair, request, bad);
}

int post_srq_recv(ibv_srq* queue, ibv_recv_wr* request, ibv_recv_wr** bad) {
  if (!is_idle()) {
    *bad = request;
    SHIM_FAULT(ibv_post_srq_recv, queue->context);
  }
  return theirs_of(queue->context).ops.post_srq_recv(queue, request, bad);
}

ibv_mw* alloc_mw(ibv_pd* domain, ibv_mw_type type) {
  SHIM_FAULT(ibv_alloc_mw, domain->context);
  return theirs_of(domain->context).ops.alloc_mw(domain, type);
}

int bind_mw(ibv_qp* pair, ibv_mw* window, ibv_mw_bind* binding) {
  SHIM_FAULT(ibv_bind_mw, pair->context);
  return theirs_of(pair->context).ops.bind_mw(pair, window, binding);
}

int dealloc_mw(ibv_mw* window) {
  SHIM_FAULT(ibv_dealloc_mw, window->context);
  return theirs_of(window->context).ops.dealloc_mw(window);
}

/// Shows the port as down if a fault has taken it down. The parameters are single members of the
/// structure that describes a port, because there is also an older version of that structure.
void show_state(ibv_context* verbs, std::uint8_t port, ibv_port_state& state,
                std::uint8_t& physical) {
  if (is_idle()) return;
  const std::lock_guard held(all().lock);
  keep_time();
  const context_record* opened = all().contexts.find(verbs);
  if (opened == nullptr || !opened->device->ports_down[port]) return;
  state = IBV_PORT_DOWN;
  physical = faults::port_disabled;
}

int query_port(ibv_context* verbs, std::uint8_t port, ibv_port_attr* attributes, std::size_t size) {
  SHIM_FAULT(ibv_query_port, verbs);
  const int error = theirs_of(verbs).query_port(verbs, port, attributes, size);
  if (error == 0) show_state(verbs, port, attributes->state, attributes->phys_state);
  return error;
}

int query_device_ex(ibv_context* verbs, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attributes, std::size_t size) {
  SHIM_FAULT(ibv_query_device_ex, verbs);
  return theirs_of(verbs).query_device_ex(verbs, input, attributes, size);
}

int query_rt_values(ibv_context* verbs, ibv_values_ex* values) {
  SHIM_FAULT(ibv_query_rt_values_ex, verbs);
  return theirs_of(verbs).query_rt_values(verbs, values);
}

ibv_dm* alloc_dm(ibv_context* verbs, ibv_alloc_dm_attr* attributes) {
  SHIM_FAULT(ibv_alloc_dm, verbs);
  ibv_dm* const memory = theirs_of(verbs).alloc_dm(verbs, attributes);
  attend_to(memory);
  return memory;
}

int memcpy_to_dm(ibv_dm* to, std::uint64_t offset, const void* from, std::size_t length) {
  SHIM_FAULT(ibv_memcpy_to_dm, to->context);
  return all().contexts.find(to->context)->memcpy_to_dm.load()(to, offset, from, length);
}

int memcpy_from_dm(void* to, ibv_dm* from, std::uint64_t offset, std::size_t length) {
  SHIM_FAULT(ibv_memcpy_from_dm, from->context);
  return all().contexts.find(from->context)->memcpy_from_dm.load()(to, from, offset, length);
}

/// Replaces a function of device memory or work queues with `own`, and keeps the original in
/// `kept`. Does nothing if `kept` already contains another function.
template <typename Function>
void put_before(Function& place, std::atomic<Function>& kept, Function own) noexcept {
  Function known = nullptr;
  if (kept.compare_exchange_strong(known, place) || known == place) place = own;
}

int free_dm(ibv_dm* memory) {
  SHIM_FAULT(ibv_free_dm, memory->context);
  return theirs_of(memory->context).free_dm(memory);
}

ibv_mr* reg_dm_mr(ibv_pd* domain, ibv_dm* memory, std::uint64_t offset, std::size_t length,
                  unsigned access) {
  SHIM_FAULT(ibv_reg_dm_mr, domain->context);
  return theirs_of(domain->context).reg_dm_mr(domain, memory, offset, length, access);
}

ibv_td* alloc_td(ibv_context* verbs, ibv_td_init_attr* attributes) {
  SHIM_FAULT(ibv_alloc_td, verbs);
  return theirs_of(verbs).alloc_td(verbs, attributes);
}

int dealloc_td(ibv_td* domain) {
  SHIM_FAULT(ibv_dealloc_td, domain->context);
  return theirs_of(domain->context).dealloc_td(domain);
}

ibv_pd* alloc_parent_domain(ibv_context* verbs, ibv_parent_domain_init_attr* attributes) {
  SHIM_FAULT(ibv_alloc_parent_domain, verbs);
  return theirs_of(verbs).alloc_parent_domain(verbs, attributes);
}

ibv_srq* create_srq_ex(ibv_context* verbs, ibv_srq_init_attr_ex* attributes) {
  SHIM_FAULT(ibv_create_srq, verbs);
  const own_descriptor shown(verbs);
  return theirs_of(verbs).create_srq_ex(verbs, attributes);
}

int post_wq_recv(ibv_wq* queue, ibv_recv_wr* request, ibv_recv_wr** bad) {
  if (!is_idle()) {
    *bad = request;
    SHIM_FAULT(ibv_post_wq_recv, queue->context);
  }
  return all().contexts.find(queue->context)->post_wq_recv.load()(queue, request, bad);
}

ibv_wq* create_wq(ibv_context* verbs, ibv_wq_init_attr* attributes) {
  SHIM_FAULT(ibv_create_wq, verbs);
  ibv_wq* queue = nullptr;
  {
    const own_descriptor shown(verbs);
    queue = theirs_of(verbs).create_wq(verbs, attributes);
  }
  if (queue == nullptr) return nullptr;
  if (context_record* const opened = all().contexts.find(queue->context))
    put_before(queue->post_recv, opened->post_wq_recv, post_wq_recv);
  return queue;
}

/// Forgets the completions of a work queue that was reset or destroyed.
void forget_completions(const ibv_context* verbs, std::uint32_t queue) {
  if (is_idle()) return;
  const std::lock_guard held(all().lock);
  if (const context_record* const opened = all().contexts.find(verbs))
    shim::forget_completions(queue, *opened);
}

int modify_wq(ibv_wq* queue, ibv_wq_attr* attributes) {
  SHIM_FAULT(ibv_modify_wq, queue->context);
  const int error = theirs_of(queue->context).modify_wq(queue, attributes);
  if (error == 0 && (attributes->attr_mask & IBV_WQ_ATTR_STATE) != 0 &&
      attributes->wq_state == IBV_WQS_RESET)
    forget_completions(queue->context, queue->wq_num);
  return error;
}

int destroy_wq(ibv_wq* queue) {
  SHIM_FAULT(ibv_destroy_wq, queue->context);
  const ibv_context* const verbs = queue->context;
  const std::uint32_t number = queue->wq_num;
  const int error = theirs_of(verbs).destroy_wq(queue);
  if (error == 0) forget_completions(verbs, number);
  return error;
}

ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* verbs,
                                        ibv_rwq_ind_table_init_attr* attributes) {
  SHIM_FAULT(ibv_create_rwq_ind_table, verbs);
  return theirs_of(verbs).create_rwq_ind_table(verbs, attributes);
}

int destroy_rwq_ind_table(ibv_rwq_ind_table* table) {
  SHIM_FAULT(ibv_destroy_rwq_ind_table, table->context);
  return theirs_of(table->context).destroy_rwq_ind_table(table);
}

ibv_cq_ex* create_cq_ex(ibv_context* verbs, ibv_cq_init_attr_ex* attributes) {
  SHIM_FAULT(ibv_create_cq_ex, verbs);
  ibv_comp_channel* const channel = attributes->channel;
  channel_record* const record = channel == nullptr ? nullptr : all().channels.find(channel);
  ibv_cq_ex* queue = nullptr;
  {
    const own_descriptor shown(verbs);
    attributes->channel = theirs(channel);
    queue = theirs_of(verbs).create_cq_ex(verbs, attributes);
    attributes->channel = channel;
  }
  if (queue == nullptr) return nullptr;
  ibv_cq* const plain = ibv_cq_ex_to_cq(queue);
  if (const int error = attend_to(plain, record, true)) {
    SOFTVERBS_NEXT(ibv_destroy_cq)(plain);
    errno = error;
    return nullptr;
  }
  return queue;
}

ibv_flow* create_flow(ibv_qp* pair, ibv_flow_attr* attributes) {
  SHIM_FAULT(ibv_create_flow, pair->context);
  return theirs_of(pair->context).create_flow(pair, attributes);
}

int destroy_flow(ibv_flow* flow) {
  SHIM_FAULT(ibv_destroy_flow, flow->context);
  return theirs_of(flow->context).destroy_flow(flow);
}

ibv_qp* create_qp_ex(ibv_context* verbs, ibv_qp_init_attr_ex* attributes) {
  SHIM_FAULT(ibv_create_qp_ex, verbs);
  return attended(verbs, [&] { return theirs_of(verbs).create_qp_ex(verbs, attributes); });
}

int advise_mr(ibv_pd* domain, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count) {
  SHIM_FAULT(ibv_advise_mr, domain->context);
  return theirs_of(domain->context).advise_mr(domain, advice, flags, list, count);
}

ibv_xrcd* open_xrcd(ibv_context* verbs, ibv_xrcd_init_attr* attributes) {
  SHIM_FAULT(ibv_open_xrcd, verbs);
  return theirs_of(verbs).open_xrcd(verbs, attributes);
}

int close_xrcd(ibv_xrcd* domain) {
  SHIM_FAULT(ibv_close_xrcd, domain->context);
  return theirs_of(domain->context).close_xrcd(domain);
}

ibv_qp* open_qp(ibv_context* verbs, ibv_qp_open_attr* attributes) {
  SHIM_FAULT(ibv_open_qp, verbs);
  return attended(verbs, [&] { return theirs_of(verbs).open_qp(verbs, attributes); });
}

/// True if the provider's table includes this function.
template <typename Function>
bool has(const verbs_context* verbs, Function verbs_context::* member) noexcept {
  const auto* place = reinterpret_cast<const std::byte*>(&(verbs->*member));
  const auto* end = reinterpret_cast<const std::byte*>(verbs + 1);
  return verbs->sz >= static_cast<std::size_t>(end - place) && verbs->*member != nullptr;
}

template <typename Function>
void put(Function& place, std::type_identity_t<Function> mine) noexcept {
  if (place != nullptr) place = mine;
}

/// Calls `visit` for each function of verbs_context that this library replaces, with the member
/// that keeps the provider's function, and with the replacement.
template <typename Visit>
void for_each_extended(const Visit& visit) noexcept {
  visit(&verbs_context::query_port, &provided::query_port, query_port);
  visit(&verbs_context::query_device_ex, &provided::query_device_ex, query_device_ex);
  visit(&verbs_context::query_rt_values, &provided::query_rt_values, query_rt_values);
  visit(&verbs_context::create_cq_ex, &provided::create_cq_ex, create_cq_ex);
  visit(&verbs_context::create_qp_ex, &provided::create_qp_ex, create_qp_ex);
  visit(&verbs_context::create_srq_ex, &provided::create_srq_ex, create_srq_ex);
  visit(&verbs_context::ibv_create_flow, &provided::create_flow, create_flow);
  visit(&verbs_context::ibv_destroy_flow, &provided::destroy_flow, destroy_flow);
  visit(&verbs_context::advise_mr, &provided::advise_mr, advise_mr);
  visit(&verbs_context::open_xrcd, &provided::open_xrcd, open_xrcd);
  visit(&verbs_context::close_xrcd, &provided::close_xrcd, close_xrcd);
  visit(&verbs_context::open_qp, &provided::open_qp, open_qp);
  visit(&verbs_context::create_wq, &provided::create_wq, create_wq);
  visit(&verbs_context::modify_wq, &provided::modify_wq, modify_wq);
  visit(&verbs_context::destroy_wq, &provided::destroy_wq, destroy_wq);
  visit(&verbs_context::create_rwq_ind_table, &provided::create_rwq_ind_table,
        create_rwq_ind_table);
  visit(&verbs_context::destroy_rwq_ind_table, &provided::destroy_rwq_ind_table,
        destroy_rwq_ind_table);
  visit(&verbs_context::alloc_dm, &provided::alloc_dm, alloc_dm);
  visit(&verbs_context::free_dm, &provided::free_dm, free_dm);
  visit(&verbs_context::reg_dm_mr, &provided::reg_dm_mr, reg_dm_mr);
  visit(&verbs_context::alloc_td, &provided::alloc_td, alloc_td);
  visit(&verbs_context::dealloc_td, &provided::dealloc_td, dealloc_td);
  visit(&verbs_context::alloc_parent_domain, &provided::alloc_parent_domain, alloc_parent_domain);
}

unsigned count_ports(ibv_context* verbs) {
  ibv_device_attr attributes{};
  return SOFTVERBS_NEXT(ibv_query_device)(verbs, &attributes) == 0 ? attributes.phys_port_cnt : 1U;
}

/// The records of the objects that a program has not destroyed when it closes their device.
class left_over {
 public:
  /// Removes the records from the tables, because new objects may have the same addresses.
  explicit left_over(const context_record& opened) {
    all().queues.each([&](queue_record& each) {
      if (each.opened == &opened) queues_.emplace_back(&each);
    });
    all().pairs.each([&](pair_record& each) {
      if (each.opened == &opened) pairs_.emplace_back(&each);
    });
    for (channel_record* each : all().open_channels)
      if (each->opened == &opened) channels_.emplace_back(each);
    for (const auto& each : queues_) all().queues.erase(each->queue);
    for (const auto& each : pairs_) all().pairs.erase(each->pair);
    for (const auto& each : channels_) {
      std::erase(all().open_channels, each.get());
      all().channels.erase(each.get());
      all().channels.erase(each->theirs);
    }
  }

  void put_back() {
    // Each pointer is released in a statement of its own, since the arguments of a call are
    // evaluated in any order.
    for (auto& each : queues_) {
      all().queues.insert(each->queue, *each);
      static_cast<void>(each.release());
    }
    for (auto& each : pairs_) {
      all().pairs.insert(each->pair, *each);
      static_cast<void>(each.release());
    }
    for (auto& each : channels_) {
      all().open_channels.push_back(each.get());
      all().channels.insert(each->theirs, *each);
      all().channels.insert(each.get(), *each);
      static_cast<void>(each.release());
    }
    queues_.clear();
    pairs_.clear();
    channels_.clear();
  }

  /// The part of `attention` that was due to these records.
  std::size_t burden() const noexcept {
    std::size_t sum = 0;
    for (const auto& each : queues_) sum += each->waiting.size() + (each->shows ? 1U : 0U);
    for (const auto& each : pairs_) sum += each->failed ? 1U : 0U;
    return sum;
  }

 private:
  std::vector<std::unique_ptr<queue_record>> queues_;
  std::vector<std::unique_ptr<pair_record>> pairs_;
  std::vector<std::unique_ptr<channel_record>> channels_;
};

ibv_context* open_with(ibv_context* verbs) {
  if (verbs == nullptr) return nullptr;
  if (const int error = attend_to(verbs)) {
    SOFTVERBS_NEXT(ibv_close_device)(verbs);
    errno = error;
    return nullptr;
  }
  return verbs;
}

}  // namespace

int attend_to(ibv_context* verbs) noexcept try {
  auto made = std::make_unique<context_record>();
  made->verbs = verbs;
  made->ports = count_ports(verbs);
  everything& here = all();
  const std::lock_guard held(here.lock);
  made->device = &state_of(verbs->device->name);
  if (made->device->broken) return EIO;
  if (!made->events.open(verbs->async_fd, here.clock.get())) return errno;
  // Room in the table is reserved first, so that nothing throws once `open` contains the record.
  here.contexts.reserve(1);
  here.open.push_back(made.get());
  here.contexts.insert(verbs, *made);
  stand_in_front(*made.release());
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void stand_in_front(context_record& opened) noexcept {
  provided& kept = opened.theirs;
  ibv_context_ops& ops = opened.verbs->ops;
  kept.ops = ops;
  put(ops.alloc_mw, alloc_mw);
  put(ops.bind_mw, bind_mw);
  put(ops.dealloc_mw, dealloc_mw);
  put(ops.poll_cq, poll_cq);
  put(ops.req_notify_cq, req_notify_cq);
  put(ops.post_srq_recv, post_srq_recv);
  put(ops.post_send, post_send);
  put(ops.post_recv, post_recv);
  if (verbs_context* verbs = verbs_get_ctx(opened.verbs))
    for_each_extended([&](auto place, auto keep, auto mine) {
      if (!has(verbs, place)) return;
      kept.*keep = verbs->*place;
      verbs->*place = mine;
    });
  opened.verbs->async_fd = opened.events.get();
}

void attend_to(ibv_dm* memory) noexcept {
  if (memory == nullptr) return;
  context_record* const opened = all().contexts.find(memory->context);
  if (opened == nullptr) return;
  put_before(memory->memcpy_to_dm, opened->memcpy_to_dm, memcpy_to_dm);
  put_before(memory->memcpy_from_dm, opened->memcpy_from_dm, memcpy_from_dm);
}

void stand_aside(context_record& opened) noexcept {
  const provided& kept = opened.theirs;
  opened.verbs->ops = kept.ops;
  if (verbs_context* verbs = verbs_get_ctx(opened.verbs))
    for_each_extended([&](auto place, auto keep, auto) {
      if (has(verbs, place) && kept.*keep != nullptr) verbs->*place = kept.*keep;
    });
  opened.verbs->async_fd = opened.events.device();
}

ibv_qp* attended(ibv_qp* pair) {
  if (pair == nullptr) return nullptr;
  if (const int error = attend_to(pair)) {
    SOFTVERBS_NEXT(ibv_destroy_qp)(pair);
    errno = error;
    return nullptr;
  }
  return pair;
}

own_descriptor::own_descriptor(ibv_context* verbs) noexcept
    : opened_(verbs->cmd_fd < 0 ? nullptr : all().contexts.find(verbs)) {
  if (opened_ == nullptr) return;
  opened_->descriptor_lock.lock();
  opened_->verbs->async_fd = opened_->events.device();
}

own_descriptor::~own_descriptor() {
  if (opened_ == nullptr) return;
  opened_->verbs->async_fd = opened_->events.get();
  opened_->descriptor_lock.unlock();
}

}  // namespace softverbs::shim

using namespace softverbs;
using namespace softverbs::shim;

SOFTVERBS_EXPORT ibv_device** ibv_get_device_list(int* count) {
  if (!read_environment()) {
    if (count != nullptr) *count = 0;
    errno = EINVAL;
    return nullptr;
  }
  SHIM_FAULT(ibv_get_device_list, nullptr);
  return SOFTVERBS_NEXT(ibv_get_device_list)(count);
}

SOFTVERBS_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  SHIM_FAULT(ibv_get_device_name, nullptr);
  return SOFTVERBS_NEXT(ibv_get_device_name)(device);
}

SOFTVERBS_EXPORT int ibv_get_device_index(ibv_device* device) {
  SHIM_FAULT(ibv_get_device_index, nullptr);
  return SOFTVERBS_NEXT(ibv_get_device_index)(device);
}

SOFTVERBS_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  SHIM_FAULT(ibv_open_device, nullptr);
  return open_with(SOFTVERBS_NEXT(ibv_open_device)(device));
}

SOFTVERBS_EXPORT ibv_context* ibv_import_device(int command_descriptor) {
  SHIM_FAULT(ibv_import_device, nullptr);
  return open_with(SOFTVERBS_NEXT(ibv_import_device)(command_descriptor));
}

SOFTVERBS_EXPORT int ibv_close_device(ibv_context* verbs) {
  SHIM_FAULT(ibv_close_device, nullptr);
  context_record* const opened = all().contexts.find(verbs);
  if (opened == nullptr) return SOFTVERBS_NEXT(ibv_close_device)(verbs);
  std::optional<left_over> rest;
  {
    const std::lock_guard held(all().lock);
    rest.emplace(*opened);
    all().contexts.erase(verbs);
    std::erase(all().open, opened);
    stand_aside(*opened);
  }
  const int error = SOFTVERBS_NEXT(ibv_close_device)(verbs);
  const std::lock_guard held(all().lock);
  if (error != 0) {
    stand_in_front(*opened);
    all().open.push_back(opened);
    all().contexts.insert(verbs, *opened);
    rest->put_back();
    return error;
  }
  attention.fetch_sub(rest->burden());
  delete opened;
  return 0;
}

SOFTVERBS_EXPORT int ibv_query_port(ibv_context* verbs, std::uint8_t port,
                                    _compat_ibv_port_attr* attributes) {
  SHIM_FAULT(ibv_query_port, verbs);
  const int error = SOFTVERBS_NEXT(ibv_query_port)(verbs, port, attributes);
  if (error == 0) {
    auto* both = reinterpret_cast<ibv_port_attr*>(attributes);
    show_state(verbs, port, both->state, both->phys_state);
  }
  return error;
}
