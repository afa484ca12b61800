// SPDX-License-Identifier: Apache-2.0
#include "verbs/device_context.hpp"

#include "faults/faults.hpp"
#include "queue_pair/frame_spreading.hpp"
#include "queue_pair/queue_pair.hpp"
#include "queue_pair/receive_work_queue.hpp"
#include "queue_pair/shared_receive_queue.hpp"
#include "queue_pair/xrc_parting.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/libibverbs_operations.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

namespace softverbs {

thread_local unsigned without_soft_devices::depth_ = 0;

device_context::device_context(const soft_device& device, softverbs::machine& machine,
                               std::shared_ptr<command_file> of) noexcept
    : verbs_context{}, open_device(device, verbs_context::context, machine), file(std::move(of)) {
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
  priv = unsupported_operations();
  query_port = inline_calls::query_port;
  // Without these operations, the inline functions of verbs.h fail, or use older verbs instead.
  if (device().description().has_extended) {
    query_device_ex = inline_calls::query_device_ex;
    query_rt_values = inline_calls::query_rt_values;
    create_cq_ex = inline_calls::create_cq_ex;
    create_qp_ex = inline_calls::create_qp_ex;
    create_srq_ex = inline_calls::create_srq_ex;
    create_wq = inline_calls::create_wq;
    modify_wq = inline_calls::modify_wq;
    destroy_wq = inline_calls::destroy_wq;
    create_rwq_ind_table = inline_calls::create_rwq_ind_table;
    destroy_rwq_ind_table = inline_calls::destroy_rwq_ind_table;
  }
  if (device().most().device_memory != 0) {
    alloc_dm = inline_calls::alloc_dm;
    free_dm = inline_calls::free_dm;
    reg_dm_mr = inline_calls::reg_dm_mr;
  }
  verbs_context::ibv_create_flow = inline_calls::create_flow;
  verbs_context::ibv_destroy_flow = inline_calls::destroy_flow;
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
  // All waiting threads are woken, because no completion can be polled while the device is broken.
  if (event.event_type == IBV_EVENT_DEVICE_FATAL)
    for (completion_channel* channel : channels) channel->events.wake();
}

void device_context::on_repair() {
  for (completion_channel* channel : channels) channel->events.calm();
}

int device_context::start() {
  if (!async_events().open()) return errno;
  verbs().async_fd = async_events().descriptor();
  if (faults::is_broken(device().number)) return EIO;
  return machine().attach();
}

/// Adds the context to the machine and to its file. Requires the engine's lock.
void device_context::join() {
  machine().listen(device().number, *this);
  faults::keep_time(machine());
  file->contexts.push_back(&verbs());
}

void device_context::give_up(device_context* opened, bool started) noexcept {
  if (opened == nullptr) return;
  softverbs::machine& machine = opened->machine();
  if (started) {
    const std::lock_guard held(machine.engine.lock());
    machine.stop_listening(*opened);
  }
  delete opened;
  if (started) machine.detach();
}

device_context* device_context::open(const soft_device& device) noexcept {
  device_context* opened = nullptr;
  int error = 0;
  bool started = false;
  try {
    opened = new device_context(device, machine::current(), std::make_shared<command_file>());
    // The descriptor refers to a sealed file, so writing a command to it fails. Programs may do
    // other things with it, such as duplicate it.
    opened->verbs().cmd_fd = open_command_file();
    if (opened->verbs().cmd_fd < 0) error = errno;
    if (error == 0) error = identify(opened->verbs().cmd_fd, *opened->file);
    if (error == 0) error = opened->start();
    started = error == 0;
    if (started) {
      const std::lock_guard held(opened->engine().lock());
      opened->join();
    }
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error == 0) return opened;
  give_up(opened, started);
  errno = error;
  return nullptr;
}

device_context* device_context::import(int command_descriptor) noexcept {
  device_context* opened = nullptr;
  command_file wanted;
  int error = identify(command_descriptor, wanted);
  bool started = false;
  try {
    softverbs::machine& machine = machine::current();
    if (error == 0) {
      const std::lock_guard held(machine.engine.lock());
      const auto* other = static_cast<const device_context*>(
          machine.find_listener([&wanted](const device_listener& each) {
            const command_file& its = *static_cast<const device_context&>(each).file;
            return its.system == wanted.system && its.number == wanted.number;
          }));
      if (other == nullptr)
        error = EOPNOTSUPP;
      else
        opened = new device_context(other->device(), machine, other->file);
    }
    if (error == 0) error = opened->start();
    started = error == 0;
    if (started) {
      const std::lock_guard held(machine.engine.lock());
      // The last context of the file may have been closed in the meantime.
      if (opened->file->contexts.empty())
        error = EOPNOTSUPP;
      else
        opened->join();
    }
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error == 0) {
    opened->verbs().cmd_fd = command_descriptor;
    return opened;
  }
  give_up(opened, started);
  errno = error;
  return nullptr;
}

ibv_context* device_context::in_this_process(ibv_context* verbs) noexcept try {
  device_context& opened = of(verbs);
  if (opened.usable()) return verbs;
  // This is a lock of this process's own machine, because a lock of the inherited device might be
  // held by a thread that doesn't exist in the child.
  const std::lock_guard held(machine::current().inheriting);
  if (opened.behind_ != nullptr && opened.behind_->usable()) return &opened.behind_->verbs();
  device_context* const own = open(opened.device());
  if (own == nullptr) return nullptr;
  if (!own->shows_events_at(opened.verbs().async_fd)) {
    const int error = errno;
    close(own);
    errno = error;
    return nullptr;
  }
  opened.part_from_behind();
  opened.behind_ = own;
  own->in_front_ = &opened;
  return &own->verbs();
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

bool device_context::shows_events_at(int number) const noexcept {
  // The flags of the program's descriptor determine whether a read blocks, so they are copied.
  const int flags = ::fcntl(number, F_GETFL);
  if (flags < 0) return true;  // the program has closed the descriptor
  return ::fcntl(verbs().async_fd, F_SETFL, flags) == 0 &&
         ::dup3(verbs().async_fd, number, O_CLOEXEC) == number;
}

device_context* device_context::part_from_behind() noexcept {
  if (behind_ != nullptr) behind_->in_front_ = nullptr;
  return std::exchange(behind_, nullptr);
}

void device_context::close(device_context* closing) noexcept {
  const bool usable = closing->usable();
  // The context behind this one is closed, too, unless it was inherited, and belongs to the parent.
  if (device_context* own = closing->part_from_behind(); own != nullptr && own->usable())
    close(own);
  // Objects that a child creates from an inherited context refer to the context behind it. So a
  // program can find that context, and close it separately.
  if (closing->in_front_ != nullptr) closing->in_front_->part_from_behind();
  softverbs::machine& machine = closing->machine();
  // Only one context of a file is closed at a time. The copied pointer keeps the file alive until
  // the lock is released.
  const std::shared_ptr<command_file> kept = closing->file;
  command_file& file = *kept;
  std::unique_lock alone(file.closing_lock, std::defer_lock);
  if (usable) alone.lock();
  bool last = false;
  {
    // The locks of an inherited device might be held by threads that don't exist here.
    std::unique_lock held(machine.engine.lock(), std::defer_lock);
    if (usable) held.lock();
    std::erase(file.contexts, &closing->verbs());
    last = file.contexts.empty();
  }
  if (usable) {
    const std::lock_guard held(machine.engine.lock());
    machine.stop_listening(*closing);
    for (queue_pair* pair : closing->queue_pairs) {
      const std::lock_guard held_here(pair->lock());
      pair->withdraw();
    }
    if (last)
      for (const memory_region* region : file.regions)
        if (region->is_object()) machine.regions.hide(*region);
  }
  // The wait must happen while all objects still exist. Without them, the announcements of peers
  // could not be verified.
  if (usable) machine.wait_for_users({announcements::any, announcements::any});
  if (usable) {
    const std::lock_guard held(machine.engine.lock());
    for (const steering_flow* flow : closing->flows) machine.engine.remove(flow->rule);
    for (queue_pair* pair : closing->queue_pairs) pair->leave_machine();
    for (xrc_target* target : closing->xrc_targets) part(*target);
    for (receive_work_queue* queue : closing->receive_work_queues) machine.engine.remove(*queue);
    for (shared_receive_queue* queue : closing->shared_receive_queues) part(*queue, machine);
    for (xrc_opening* opening : closing->xrc_openings) part(*opening, machine);
    for (memory_window* window : closing->windows) machine.regions.remove(*window);
    if (last)
      for (const memory_region* region : file.regions)
        if (region->is_object()) machine.regions.remove(*region);
    for (completion_queue* queue : closing->completion_queues) queue->detach();
  }
  const auto leave_domains = [](const auto& objects) {
    for (const auto* each : objects) --static_cast<protection_domain*>(each->pd)->children;
  };
  {
    std::unique_lock held(machine.engine.lock(), std::defer_lock);
    if (usable) held.lock();
    // If a program closes a device before its objects are destroyed, the program's allocator may no
    // longer exist, and the memory of its queues may be unmapped. Like a driver, this function
    // leaves the memory to the program, and doesn't access it.
    for (protection_domain* domain : file.domains)
      if (domain->context == &closing->verbs()) domain->free = nullptr;
    leave_domains(closing->queue_pairs);
    leave_domains(closing->receive_work_queues);
    leave_domains(closing->shared_receive_queues);
    leave_domains(closing->windows);
    leave_domains(closing->address_handles);
  }
  for (steering_flow* flow : closing->flows) delete flow;
  for (queue_pair* pair : closing->queue_pairs) delete pair;
  for (xrc_target* target : closing->xrc_targets) delete target;
  for (completion_counter* counter : closing->completion_counters) delete counter;
  for (indirection_table* table : closing->indirection_tables) delete table;
  for (receive_work_queue* queue : closing->receive_work_queues) delete queue;
  for (shared_receive_queue* queue : closing->shared_receive_queues) delete queue;
  for (xrc_opening* opening : closing->xrc_openings) delete opening;
  for (completion_queue* queue : closing->completion_queues) delete queue;
  for (completion_channel* channel : closing->channels) delete channel;
  for (memory_window* window : closing->windows) delete window;
  for (address_handle* handle : closing->address_handles) delete handle;
  {
    std::unique_lock held(machine.engine.lock(), std::defer_lock);
    if (usable) held.lock();
    if (last) {
      for (const device_memory* memory : file.memories)
        if (usable && memory->is_object()) machine.device_memory.give_back(memory->bytes);
    } else {
      file.part(closing->verbs());
    }
  }
  // `clear` unmaps buffers, so it is called without the lock. No other thread can reach these
  // objects.
  if (last) file.clear();
  for (thread_domain* domain : closing->thread_domains) delete domain;
  delete closing;
  if (usable) machine.detach();
}

}  // namespace softverbs
