// SPDX-License-Identifier: Apache-2.0
#include "verbs/device_context.hpp"

#include "base/sealed_file.hpp"
#include "faults/faults.hpp"
#include "queue_pair/queue_pair.hpp"
#include "queue_pair/shared_receive_queue.hpp"
#include "queue_pair/xrc_parting.hpp"
#include "verbs/inline_calls.hpp"

#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <new>

namespace softverbs {

device_context::device_context(const soft_device& device, softverbs::machine& machine) noexcept
    : verbs_context{}, open_device(device, verbs_context::context, machine) {
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

device_context::~device_context() {
  if (verbs().cmd_fd >= 0) ::close(verbs().cmd_fd);
  ::pthread_mutex_destroy(&verbs().mutex);
}

void device_context::fill_operations() noexcept {
  query_port = inline_calls::query_port;
  // verbs.h tells what is missing by itself.
  if (device().description().has_extended) {
    query_device_ex = inline_calls::query_device_ex;
    query_rt_values = inline_calls::query_rt_values;
    create_cq_ex = inline_calls::create_cq_ex;
    create_qp_ex = inline_calls::create_qp_ex;
    create_srq_ex = inline_calls::create_srq_ex;
  }
  if (device().most().device_memory != 0) {
    alloc_dm = inline_calls::alloc_dm;
    free_dm = inline_calls::free_dm;
    reg_dm_mr = inline_calls::reg_dm_mr;
  }
  advise_mr = inline_calls::advise_mr;
  open_xrcd = inline_calls::open_xrcd;
  close_xrcd = inline_calls::close_xrcd;
  open_qp = inline_calls::open_qp;
  get_srq_num = inline_calls::get_srq_num;
  alloc_td = inline_calls::alloc_td;
  dealloc_td = inline_calls::dealloc_td;
  alloc_parent_domain = inline_calls::alloc_parent_domain;
  ibv_context_ops& base = verbs().ops;
  base._compat_query_device = ibv_query_device;
  base.alloc_mw = inline_calls::alloc_mw;
  base.bind_mw = inline_calls::bind_mw;
  base.dealloc_mw = inline_calls::dealloc_mw;
  base.poll_cq = inline_calls::poll_cq;
  base.req_notify_cq = inline_calls::req_notify_cq;
  base.post_srq_recv = inline_calls::post_srq_recv;
  base.post_send = inline_calls::post_send;
  base.post_recv = inline_calls::post_recv;
}

void device_context::on_device_event(const ibv_async_event& event) {
  async_events().push(event);
  // Nothing will complete any more.
  if (event.event_type == IBV_EVENT_DEVICE_FATAL)
    for (completion_channel* channel : channels) channel->events.wake();
}

void device_context::on_repair() {
  for (completion_channel* channel : channels) channel->events.calm();
}

device_context* device_context::open(const soft_device& device) {
  softverbs::machine& machine = machine::current();
  auto* opened = new (std::nothrow) device_context(device, machine);
  if (opened == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  int error = opened->async_events().open() ? 0 : errno;
  // There is no kernel to send commands to. What programs do with the descriptor all the same, such
  // as to duplicate it, works; a command that they write to it is refused.
  if (error == 0 && (opened->verbs().cmd_fd = open_sealed_file({})) < 0) error = errno;
  if (faults::is_broken(device.number)) error = EIO;
  if (error == 0) error = machine.attach();
  if (error != 0) {
    delete opened;
    errno = error;
    return nullptr;
  }
  opened->verbs().async_fd = opened->async_events().descriptor();
  const std::lock_guard held(machine.engine.lock());
  machine.listen(device.number, *opened);
  faults::keep_time(machine);
  return opened;
}

void device_context::close(device_context* closing) noexcept {
  const bool usable = closing->usable();
  softverbs::machine& machine = closing->machine();
  if (usable) {
    const std::lock_guard held(machine.engine.lock());
    machine.stop_listening(*closing);
    for (queue_pair* pair : closing->queue_pairs) {
      const std::lock_guard held_here(pair->lock());
      pair->withdraw();
    }
    for (const memory_region* region : closing->regions) machine.regions.hide(*region);
  }
  // As long as all of it is known, so that who says that he uses it can be believed.
  if (usable) machine.wait_for_users({announcements::any, announcements::any});
  if (usable) {
    const std::lock_guard held(machine.engine.lock());
    for (queue_pair* pair : closing->queue_pairs) pair->leave_machine();
    for (xrc_target* target : closing->xrc_targets) part(*target);
    for (shared_receive_queue* queue : closing->shared_receive_queues) part(*queue, machine);
    for (xrc_opening* opening : closing->xrc_openings) part(*opening, machine);
    for (memory_window* window : closing->windows) machine.regions.remove(*window);
    for (const memory_region* region : closing->regions) machine.regions.remove(*region);
    for (completion_queue* queue : closing->completion_queues) queue->detach();
  }
  for (queue_pair* pair : closing->queue_pairs) delete pair;
  for (xrc_target* target : closing->xrc_targets) delete target;
  for (shared_receive_queue* queue : closing->shared_receive_queues) delete queue;
  for (xrc_opening* opening : closing->xrc_openings) delete opening;
  for (completion_queue* queue : closing->completion_queues) delete queue;
  for (completion_channel* channel : closing->channels) delete channel;
  for (memory_window* window : closing->windows) delete window;
  for (memory_region* region : closing->regions) delete region;
  if (usable) {
    const std::lock_guard held(machine.engine.lock());
    for (const device_memory* memory : closing->memories)
      machine.device_memory.give_back(memory->bytes);
  }
  for (device_memory* memory : closing->memories) delete memory;
  for (address_handle* handle : closing->address_handles) delete handle;
  for (protection_domain* domain : closing->domains) delete domain;
  for (thread_domain* domain : closing->thread_domains) delete domain;
  delete closing;
  if (usable) machine.detach();
}

}  // namespace softverbs
