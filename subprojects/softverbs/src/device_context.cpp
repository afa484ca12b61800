// SPDX-License-Identifier: Apache-2.0
#include "device_context.hpp"

#include "engine.hpp"
#include "faults.hpp"
#include "operations.hpp"
#include "queue_pair.hpp"
#include "shared_receive_queue.hpp"

#include <cerrno>
#include <mutex>
#include <new>

namespace softverbs {

device_context::device_context(const soft_device& device, softverbs::engine& engine) noexcept
    : verbs_context{}, device_(device), engine_(engine) {
  sz = sizeof(verbs_context);
  ibv_context& base = verbs();
  base.device = const_cast<ibv_device*>(&device.verbs);
  base.cmd_fd = -1;
  base.async_fd = -1;
  base.num_comp_vectors = limits::completion_vectors;
  base.abi_compat = __VERBS_ABI_IS_EXTENDED;
  ::pthread_mutex_init(&base.mutex, nullptr);
  fill_operations();
}

device_context::~device_context() { ::pthread_mutex_destroy(&verbs().mutex); }

void device_context::fill_operations() noexcept {
  query_port = operations::query_port;
  query_device_ex = operations::query_device_ex;
  query_rt_values = operations::query_rt_values;
  create_cq_ex = operations::create_cq_ex;
  create_qp_ex = operations::create_qp_ex;
  alloc_td = operations::alloc_td;
  dealloc_td = operations::dealloc_td;
  alloc_parent_domain = operations::alloc_parent_domain;
  ibv_context_ops& base = verbs().ops;
  base._compat_query_device = ibv_query_device;
  base.alloc_mw = operations::alloc_mw;
  base.bind_mw = operations::bind_mw;
  base.dealloc_mw = operations::dealloc_mw;
  base.poll_cq = operations::poll_cq;
  base.req_notify_cq = operations::req_notify_cq;
  base.post_srq_recv = operations::post_srq_recv;
  base.post_send = operations::post_send;
  base.post_recv = operations::post_recv;
}

bool device_context::usable() const noexcept { return &engine_ == &engine::current(); }

device_context* device_context::open(const soft_device& device) {
  engine& machine = engine::current();
  auto* opened = new (std::nothrow) device_context(device, machine);
  if (opened == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  int error = opened->async_events_.open() ? 0 : errno;
  if (faults::is_broken(device.number)) error = EIO;
  if (error == 0) error = machine.attach();
  if (error != 0) {
    delete opened;
    errno = error;
    return nullptr;
  }
  opened->verbs().async_fd = opened->async_events_.descriptor();
  const std::lock_guard held(machine.lock);
  machine.contexts.push_back(opened);
  return opened;
}

void device_context::close(device_context* closing) noexcept {
  const bool usable = closing->usable();
  engine& machine = closing->engine_;
  if (usable) {
    const std::lock_guard held(machine.lock);
    std::erase(machine.contexts, closing);
    for (queue_pair* pair : closing->queue_pairs) {
      pair->say_goodbye();
      machine.remove(*pair);
      machine.groups.forget(*pair);
    }
    for (memory_window* window : closing->windows) machine.regions.remove(*window);
    for (const memory_region* region : closing->regions) machine.regions.remove(*region);
    if (machine.groups.empty()) machine.wire.hear_multicasts(false);
    for (completion_queue* queue : closing->completion_queues) queue->detach();
  }
  for (queue_pair* pair : closing->queue_pairs) delete pair;
  for (shared_receive_queue* queue : closing->shared_receive_queues) delete queue;
  for (completion_queue* queue : closing->completion_queues) delete queue;
  for (completion_channel* channel : closing->channels) delete channel;
  for (memory_window* window : closing->windows) delete window;
  for (memory_region* region : closing->regions) delete region;
  for (address_handle* handle : closing->address_handles) delete handle;
  for (protection_domain* domain : closing->domains) delete domain;
  for (thread_domain* domain : closing->thread_domains) delete domain;
  delete closing;
  if (usable) machine.detach();
}

}  // namespace softverbs
