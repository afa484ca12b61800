// SPDX-License-Identifier: Apache-2.0
// The entry points for receive work queues, for indirection tables, and for the queue pairs that
// spread frames over the queues.
#include "verbs/receive_scaling.hpp"

#include "base/capability.hpp"
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "queue_pair/frame_spreading.hpp"
#include "queue_pair/queue_pair.hpp"
#include "queue_pair/receive_work_queue.hpp"
#include "verbs/acknowledgement.hpp"
#include "verbs/device_context.hpp"
#include "verbs/failed.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/nesting.hpp"
#include "verbs/queue_pair.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace softverbs {
namespace {

/// Checks the attributes, and sets the granted capacities. Returns 0 or an errno value.
int check_work_queue(const device_context& device, ibv_wq_init_attr& attributes) noexcept {
  const ibv_context* const verbs = &device.verbs();
  if (!device.usable()) return EIO;
  if (!device.device().has_ethernet()) return EOPNOTSUPP;
  if (attributes.comp_mask >= IBV_WQ_INIT_ATTR_RESERVED || attributes.wq_type != IBV_WQT_RQ ||
      attributes.pd == nullptr || attributes.pd->context != verbs || attributes.cq == nullptr ||
      attributes.cq->context != verbs)
    return EINVAL;
  if ((attributes.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0 && attributes.create_flags != 0)
    return EOPNOTSUPP;
  return receive_queue::grant(device.device().most(), attributes.max_wr, attributes.max_sge);
}

/// Adds the queue to the device. Returns 0 or an errno value.
int add_work_queue(device_context& device, receive_work_queue& queue) {
  auto& owner = *static_cast<protection_domain*>(queue.pd);
  const std::lock_guard held(device.engine().lock());
  if (owner.of->destroyed) return EINVAL;
  if (device.receive_work_queues.size() >= device.device().most().receive_work_queues)
    return ENOMEM;
  device.receive_work_queues.insert(&queue);
  if (const int error = queue.enter_machine()) {
    device.receive_work_queues.erase(&queue);
    return error;
  }
  ++owner.children;
  ++queue.completions().queue_pairs;
  return 0;
}

/// Collects the queues of a table. Returns 0 or an errno value; checks for errors in the same order
/// as the kernel.
int read_table(const device_context& device, const ibv_rwq_ind_table_init_attr& attributes,
               std::vector<receive_work_queue*>& queues) {
  if (!device.usable()) return EIO;
  if (!device.device().has_ethernet()) return EOPNOTSUPP;
  if (attributes.comp_mask != 0 || attributes.log_ind_tbl_size > limits::indirection_bits)
    return EINVAL;
  const std::size_t size = std::size_t{1} << attributes.log_ind_tbl_size;
  queues.reserve(size);
  for (std::size_t place = 0; place < size; ++place) {
    ibv_wq* const named = attributes.ind_tbl[place];
    if (named == nullptr || named->context != &device.verbs()) return EINVAL;
    queues.push_back(static_cast<receive_work_queue*>(named));
  }
  return 0;
}

int check_spreading(const device_context& device, const ibv_qp_init_attr_ex& asked) noexcept {
  constexpr std::uint32_t needed = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  if (!device.usable()) return EIO;
  if (asked.qp_type != IBV_QPT_RAW_PACKET || !device.device().has_ethernet()) return EOPNOTSUPP;
  // The queue pair itself has no queues.
  const ibv_qp_cap& cap = asked.cap;
  if ((asked.comp_mask & needed) != needed ||
      (asked.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0 || cap.max_recv_wr != 0 ||
      cap.max_recv_sge != 0 || asked.recv_cq != nullptr || asked.srq != nullptr ||
      asked.rwq_ind_tbl == nullptr)
    return EINVAL;
  // The kernel checks this before it calls a driver.
  if (!may_send_raw()) return EPERM;
  if (cap.max_send_wr != 0 || asked.rwq_ind_tbl->context != &device.verbs()) return EINVAL;
  return receive_hash::check(
      asked.rx_hash_conf, static_cast<const indirection_table*>(asked.rwq_ind_tbl)->queues.size());
}

}  // namespace

bool asks_to_spread(const ibv_qp_init_attr_ex& attributes) noexcept {
  return (attributes.comp_mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH)) != 0;
}

int create_spreading(device_context& device, ibv_qp_init_attr_ex& attributes, ibv_qp*& created) {
  if (const int error = check_spreading(device, attributes)) return error;
  ibv_qp_init_attr granted{};
  granted.qp_context = attributes.qp_context;
  granted.qp_type = attributes.qp_type;
  try {
    auto pair = std::make_unique<queue_pair>(
        device, *static_cast<protection_domain*>(attributes.pd), granted,
        frame_spreading{*static_cast<indirection_table*>(attributes.rwq_ind_tbl),
                        receive_hash(attributes.rx_hash_conf)});
    if (const int error = enter(device, *pair)) return error;
    attributes.cap = {};
    created = pair.release();
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

ibv_wq* inline_calls::create_wq(ibv_context* verbs, ibv_wq_init_attr* attributes) {
  SOFTVERBS_FAULT(ibv_create_wq, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  device_context& device = device_context::of(verbs);
  ibv_wq_init_attr granted = *attributes;
  if (const int error = check_work_queue(device, granted)) return failed<ibv_wq>(error);
  try {
    auto queue = std::make_unique<receive_work_queue>(
        device, *static_cast<protection_domain*>(granted.pd), granted);
    queue->post_recv = post_wq_recv;
    if (const int error = add_work_queue(device, *queue)) return failed<ibv_wq>(error);
    *attributes = granted;
    return queue.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_wq>(ENOMEM);
  }
}

int inline_calls::modify_wq(ibv_wq* queue, ibv_wq_attr* attributes) {
  SOFTVERBS_FAULT(ibv_modify_wq, queue->context);
  device_context& device = device_context::of(queue->context);
  if (!device.usable()) return EIO;
  auto* const ours = static_cast<receive_work_queue*>(queue);
  const bool resets =
      (attributes->attr_mask & IBV_WQ_ATTR_STATE) != 0 && attributes->wq_state == IBV_WQS_RESET;
  if (resets && ours->completions().is_being_read_here()) return refuse_nested_poll();
  const std::lock_guard held(device.engine().lock());
  const int error = ours->modify(*attributes);
  if (error == 0) device.engine().ring_doorbell();
  return error;
}

int inline_calls::destroy_wq(ibv_wq* queue) {
  SOFTVERBS_FAULT(ibv_destroy_wq, queue->context);
  device_context& device = device_context::of(queue->context);
  if (!device.usable()) return EIO;
  auto* const ours = static_cast<receive_work_queue*>(queue);
  if (ours->completions().is_being_read_here()) return refuse_nested_poll();
  unsigned events = 0;
  {
    const std::lock_guard held(device.engine().lock());
    if (ours->tables != 0) return EBUSY;
    device.engine().remove(*ours);
    device.receive_work_queues.erase(ours);
    ours->forget_completions();
    --ours->completions().queue_pairs;
    device.async_events().drop([ours](const ibv_async_event& event) {
      return event.event_type == IBV_EVENT_WQ_FATAL && event.element.wq == ours;
    });
    events = ours->async_events_reported;
  }
  delete_acknowledged(device, ours, events);
  return 0;
}

int inline_calls::post_wq_recv(ibv_wq* queue, ibv_recv_wr* request, ibv_recv_wr** bad) {
  if (const auto failure = faults::strike(faults::number_of("ibv_post_wq_recv"), queue->context)) {
    *bad = request;
    return *failure;
  }
  if (!device_context::of(queue->context).usable()) {
    *bad = request;
    return EIO;
  }
  return static_cast<receive_work_queue*>(queue)->post(request, bad);
}

ibv_rwq_ind_table* inline_calls::create_rwq_ind_table(ibv_context* verbs,
                                                      ibv_rwq_ind_table_init_attr* attributes) {
  SOFTVERBS_FAULT(ibv_create_rwq_ind_table, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
  device_context& device = device_context::of(verbs);
  try {
    std::vector<receive_work_queue*> queues;
    if (const int error = read_table(device, *attributes, queues))
      return failed<ibv_rwq_ind_table>(error);
    auto table = std::make_unique<indirection_table>(*verbs, std::move(queues));
    const std::lock_guard held(device.engine().lock());
    if (device.indirection_tables.size() >= device.device().most().indirection_tables)
      return failed<ibv_rwq_ind_table>(ENOMEM);
    device.indirection_tables.insert(table.get());
    for (receive_work_queue* queue : table->queues) ++queue->tables;
    static int last_number = 0;
    table->ind_tbl_handle = table->ind_tbl_num = ++last_number;
    return table.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_rwq_ind_table>(ENOMEM);
  }
}

int inline_calls::destroy_rwq_ind_table(ibv_rwq_ind_table* table) {
  SOFTVERBS_FAULT(ibv_destroy_rwq_ind_table, table->context);
  device_context& device = device_context::of(table->context);
  if (!device.usable()) return EIO;
  auto* const ours = static_cast<indirection_table*>(table);
  const std::lock_guard held(device.engine().lock());
  if (ours->queue_pairs != 0) return EBUSY;
  for (receive_work_queue* queue : ours->queues) --queue->tables;
  device.indirection_tables.erase(ours);
  delete ours;
  return 0;
}

}  // namespace softverbs
