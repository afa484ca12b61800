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

/// One lock for all that has to do with connections: nothing of it is on a data path. Taken before
/// those of the engine. While it is held the thread can't be cancelled, as threads that wait for
/// events often are.
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

/// What the program gets, with what it points to.
struct connection_event final : rdma_cm_event {
  static constexpr std::size_t most_private_data = 256;

  connection_event() noexcept : rdma_cm_event{} {}
  /// Whoever is not destroyed before this is acknowledged: of a request, who listens.
  identifier* owner = nullptr;
  multicast_membership* membership = nullptr;
  /// When its cause was: the sending of a message, or else when the event was made.
  nanoseconds caused_at = now();
  std::array<std::uint8_t, most_private_data> private_data{};
};

/// Whoever has descriptors or times that a channel looks at.
class channel_member {
 public:
  /// The descriptor is readable, or closed by its other end.
  virtual void on_ready() = 0;
  virtual void on_time() = 0;

  /// 0 for none; set by the channel alone.
  nanoseconds wakes_at = 0;

 protected:
  ~channel_member() = default;
};

/// Events of connections. Its descriptor is an epoll instance with the sockets of all that belongs
/// to it, so nothing but the program's own threads looks at them: what a peer has said is read by
/// whoever asks for an event.
class event_channel final : public rdma_event_channel {
 public:
  /// Null with errno. Under the lock of connections, as all that follows but `ring`.
  static std::unique_ptr<event_channel> open();
  static event_channel& of(rdma_event_channel* channel) noexcept {
    return *static_cast<event_channel*>(channel);
  }
  /// Whether it has not been destroyed.
  static bool is_there(rdma_event_channel* channel) noexcept;
  event_channel(const event_channel&) = delete;
  event_channel& operator=(const event_channel&) = delete;
  ~event_channel();

  bool watch(int descriptor, channel_member& member) noexcept;
  /// The same of what nobody reads: once for each time that it becomes readable. If it is so now,
  /// the member has been told when this returns.
  bool watch_edges(int descriptor, channel_member& member);
  void unwatch(int descriptor) noexcept;
  /// Calls `on_time` then; 0 for never.
  void wake_at(channel_member& member, nanoseconds when);

  /// Puts the event behind those with an earlier cause, and behind those of the same identifier.
  void post(std::unique_ptr<connection_event> event);
  /// Reads the messages that have arrived, and returns the event with the earliest cause, or null.
  std::unique_ptr<connection_event> take();
  /// Those that the predicate says yes to are moved behind each other to the sink.
  void extract(const std::function<bool(const connection_event&)>& which,
               const std::function<void(std::unique_ptr<connection_event>)>& sink);

  /// Readable from here on until somebody has looked; needs no lock.
  void ring() const noexcept;

  /// In a child of fork: they are its parent's.
  static void abandon_all() noexcept;

 private:
  event_channel();
  bool watch(int descriptor, channel_member& member, std::uint32_t what) noexcept;
  void abandon() noexcept;
  /// Reads until nothing is left that came before anything that it has read.
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
