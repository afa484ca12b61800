// SPDX-License-Identifier: Apache-2.0
// The entry points for channels and their events.
#include "connections/calls.hpp"
#include "connections/removal.hpp"
#include "faults/faults.hpp"
#include "machine/machine.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>

#include <cerrno>
#include <ctime>
#include <new>
#include <utility>

using namespace softverbs;

namespace {

void before_fork() noexcept { connections_mutex().lock(); }
void after_fork_in_parent() noexcept { connections_mutex().unlock(); }
void after_fork_in_child() noexcept {
  // If the child kept the parent's sockets, peers would consider the parent alive after it has
  // exited.
  for_each_identifier([](identifier& each) { each.abandon(); });
  reservation::abandon_all();
  event_channel::abandon_all();
  abandon_devices();
  faults::abandon_breakages();
  connections_mutex().unlock();
}

/// Counts an event that the program receives, and has to acknowledge.
void hand_over(connection_event& event) {
  ++event.owner->reported;
  if (event.membership != nullptr) ++event.membership->reported;
}

/// If the event is a request to a synchronous listener, moves the request's identifier to a new
/// channel, which the identifier then owns. Returns 0 or an errno value.
int give_own_channel(const connection_event& event) {
  if (event.event != RDMA_CM_EVENT_CONNECT_REQUEST || !event.owner->is_synchronous()) return 0;
  auto opened = open_channel();
  if (!opened) return errno;
  identifier& made = identifier::of(event.id);
  made.move_to(*opened);
  made.own_channel = std::move(opened);
  return 0;
}

/// Removes and returns the next event, or returns null if there is none. Requires the lock.
std::unique_ptr<connection_event> take(event_channel& channel) {
  for (;;) {
    auto event = channel.take();
    if (!event) return nullptr;
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) event->owner->take_next_request();
    if (give_own_channel(*event) != 0) {
      identifier::of(event->id).destroy();
      continue;
    }
    hand_over(*event);
    return event;
  }
}

/// Called by a thread whose channel another thread has destroyed. With the kernel, the thread would
/// sleep forever. Programs rely on this if they destroy everything and exit while a thread waits
/// for events. To give them time to exit, this function waits a second before it returns -1 with
/// EBADF.
int wait_for_exit() noexcept {
  constexpr timespec second{1, 0};
  ::nanosleep(&second, nullptr);
  return outcome(EBADF);
}

}  // namespace

void softverbs::prepare_for_fork() {
  // The machine must register its fork handlers first. Before a fork, the handlers that were
  // registered last run first, so the lock of connections is taken before the engine's.
  static_cast<void>(machine::current());
  static const int registered =
      ::pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
  static_cast<void>(registered);
}

rdma_event_channel* softverbs::make_channel() {
  prepare_for_fork();
  const connections_lock held;
  return open_channel().release();
}

int softverbs::complete(identifier& id) {
  if (!id.is_synchronous()) return 0;
  if (id.event != nullptr) rdma_ack_cm_event(std::exchange(id.event, nullptr));
  if (rdma_get_cm_event(id.channel, &id.event) != 0) return -1;
  const int status = id.event->status;
  if (status == 0) return 0;
  if (id.event->event == RDMA_CM_EVENT_REJECTED) return outcome(ECONNREFUSED);
  return outcome(status < 0 ? -status : status);
}

SOFTVERBS_EXPORT rdma_event_channel* rdma_create_event_channel() {
  SOFTVERBS_PASS_ON(rdma_create_event_channel);
  try {
    return make_channel();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

SOFTVERBS_EXPORT void rdma_destroy_event_channel(rdma_event_channel* channel) {
  SOFTVERBS_PASS_ON(rdma_destroy_event_channel, channel);
  const connections_lock held;
  delete &event_channel::of(channel);
}

SOFTVERBS_EXPORT int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  SOFTVERBS_PASS_ON(rdma_get_cm_event, channel, event);
  if (event == nullptr) return outcome(EINVAL);
  try {
    for (;;) {
      pollfd readable{-1, POLLIN, 0};
      bool is_there = false;
      {
        const connections_lock held;
        is_there = event_channel::is_there(channel);
        if (is_there) {
          if (channel->fd < 0) return outcome(EIO);  // in a forked child
          if (auto taken = take(event_channel::of(channel))) {
            *event = taken.release();
            return 0;
          }
          readable.fd = channel->fd;
        }
      }
      if (!is_there) return wait_for_exit();
      // The descriptor's flags, which the program sets, determine whether to wait.
      if ((::fcntl(readable.fd, F_GETFL) & O_NONBLOCK) != 0) return outcome(EAGAIN);
      if (::poll(&readable, 1, -1) < 0) return -1;
    }
  } catch (const std::bad_alloc&) {
    return outcome(ENOMEM);
  }
}

SOFTVERBS_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) {
  SOFTVERBS_PASS_ON(rdma_ack_cm_event, event);
  if (event == nullptr) return outcome(EINVAL);
  const connections_lock held;
  const std::unique_ptr<connection_event> done(static_cast<connection_event*>(event));
  if (done->membership != nullptr) ++done->membership->acknowledged;
  ++done->owner->acknowledged;
  done->owner->all_acknowledged.notify_all();
  return 0;
}
