// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"

#include <rdma/rdma_cma.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace softverbs {

class identifier;
class multicast_membership;

/// Holds the process's lock of connections. The lock must be taken before the engine's lock. A
/// thread that holds it can't be cancelled, because programs often cancel threads that wait for
/// events.
class connections_lock {
 public:
  connections_lock();
  connections_lock(const connections_lock&) = delete;
  connections_lock& operator=(const connections_lock&) = delete;
  ~connections_lock();

 private:
  std::unique_lock<std::mutex> held_;
  int cancelled_ = 0;
};
std::mutex& connections_mutex() noexcept;

/// An event for the program, including the data that it points to.
struct connection_event final : rdma_cm_event {
  static constexpr std::size_t most_private_data = 256;

  connection_event() noexcept : rdma_cm_event{} {}
  /// The identifier that must not be destroyed before this event is acknowledged. For a connection
  /// request, it is the listener.
  identifier* owner = nullptr;
  multicast_membership* membership = nullptr;
  /// The time of the event's cause. If the cause is a message from the peer, this is the time at
  /// which the message was sent; otherwise, it is the time at which this event was created.
  nanoseconds caused_at = now();
  std::array<std::uint8_t, most_private_data> private_data{};
};

/// The owner of descriptors or timeouts that a channel watches.
class channel_member {
 public:
  /// Called when the descriptor is readable, or closed at its other end.
  virtual void on_ready() = 0;
  virtual void on_time() = 0;

  /// The time at which the channel calls `on_time`; 0 for never. Only the channel sets it.
  nanoseconds wakes_at = 0;

 protected:
  ~channel_member() = default;
};

/// The events of identifiers, in order. The descriptor `fd` is an epoll instance that watches the
/// sockets of all members. Only the program's own threads serve the sockets: a peer's messages are
/// read when a thread requests an event.
class event_channel final : public rdma_event_channel {
 public:
  /// Opens a channel. Returns null with errno on failure. Like all functions below except `ring`,
  /// it requires the lock of connections.
  static std::unique_ptr<event_channel> open();
  static event_channel& of(rdma_event_channel* channel) noexcept {
    return *static_cast<event_channel*>(channel);
  }
  /// True if the channel has not been destroyed.
  static bool is_there(rdma_event_channel* channel) noexcept;
  event_channel(const event_channel&) = delete;
  event_channel& operator=(const event_channel&) = delete;
  ~event_channel();

  bool watch(int descriptor, channel_member& member) noexcept;
  /// Like `watch`, but for an eventfd that no thread reads, so that it stays readable. Notifies the
  /// member once after new writes to the eventfd. If the eventfd is readable already, notifies the
  /// member before this function returns.
  bool watch_edges(int descriptor, channel_member& member);
  void unwatch(int descriptor) noexcept;
  /// Makes the channel call the member's `on_time` at the time `when` instead of the previous time;
  /// 0 for never.
  void wake_at(channel_member& member, nanoseconds when);

  /// Inserts the event after all events with an earlier cause, and after all events of the same
  /// identifier.
  void post(std::unique_ptr<connection_event> event);
  /// Reads the messages that have arrived. Then removes and returns the first event, or returns
  /// null if there is none.
  std::unique_ptr<connection_event> take();
  /// Removes the events for which `which` returns true, and passes them to `sink` in order.
  void extract(const std::function<bool(const connection_event&)>& which,
               const std::function<void(std::unique_ptr<connection_event>)>& sink);

  /// Makes the descriptor readable until a thread has polled the channel. Needs no lock.
  void ring() const noexcept;

  /// Closes all descriptors in a forked child, because they belong to the parent.
  static void abandon_all() noexcept;

 private:
  event_channel();
  bool watch(int descriptor, channel_member& member, std::uint32_t what) noexcept;
  void abandon() noexcept;
  /// Reads the messages that have arrived, until none is left or a limited number of successive
  /// polls has produced no event.
  void progress();
  bool look();
  void serve_timer();
  void set_timer() noexcept;

  int bell_ = -1;
  int timer_ = -1;
  std::deque<std::unique_ptr<connection_event>> events_;
  std::multimap<nanoseconds, channel_member*> times_;
};

}  // namespace softverbs
