// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "wire/greeting.hpp"
#include "wire/packet.hpp"

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace softverbs {

/// The outcome of sending a packet.
enum class sent : std::uint8_t {
  yes,
  lost,     ///< not delivered, often because no process is at the target; not an error
  blocked,  ///< not possible now; `wait_writable` reports when to retry
  fault,    ///< the payload's memory can't be read
};

/// The order in which queue pairs resume when a connection accepts packets again. Without an order,
/// a queue pair that fills the connection each time would starve the others. Responses have to
/// overtake data. Otherwise, two sides that send a lot would never receive each other's
/// acknowledgements.
enum class turn : std::uint8_t {
  answer,  ///< for an acknowledgement, a refusal or a read response
  next,    ///< for a request, if the queue pair could send nothing this time
  last,    ///< for a request, if the queue pair has sent something this time
};

/// The owner of a payload's memory. The program may have unmapped its memory.
enum class payload_of : std::uint8_t { program, device };

/// A received packet, valid until the next one is requested. The sender may still be able to change
/// the payload, so nothing in it may be read twice.
struct packet {
  packet_header header;
  const std::byte* payload;
};

struct outlet;
struct inlet;

/// Moves packets between processes, and within this one, through sockets in the abstract Unix
/// namespace and through shared memory without a name. Neither leaves anything behind after a
/// crash.
///
/// A process listens on a slot, whose number is the upper part of its queue pair numbers. All
/// packets that it sends to another process go through one connection, which it opened to the
/// other's slot, and which carries only notices in the other direction. So it does not matter in
/// which order two processes open or close connections, and this process itself is a peer like any
/// other.
class wire {
 public:
  static constexpr unsigned index_bits = 14;
  static constexpr std::uint32_t index_mask = (1U << index_bits) - 1;
  static constexpr std::uint32_t slots = 1U << (24 - index_bits);
  /// The first and the last slot are never used, because they contain reserved queue pair numbers.
  static constexpr std::uint32_t last_slot = slots - 2;

  wire();
  wire(const wire&) = delete;
  wire& operator=(const wire&) = delete;
  ~wire();

  /// Takes a free slot. Returns 0 or an errno value.
  int open();

  /// Marks the connections to other processes as ended, so that requests stop accessing their
  /// memory directly. Everything else continues until `close`.
  void part() noexcept;
  /// Tries to send the packets that are still owed to peers, and closes all connections.
  void close() noexcept;

  /// Closes all connections without sending anything: for a forked child, whose parent continues.
  void abandon() noexcept;

  bool is_open() const noexcept { return listener_ >= 0; }
  std::uint32_t slot() const noexcept { return slot_; }
  /// The epoll descriptor, which is readable while an event of a socket is pending. Packets in the
  /// rings that are polled don't make it readable (see `is_watched`).
  int descriptor() const noexcept { return epoll_; }

  /// Polls for packets. Unless `thoroughly` is true, this may skip epoll_wait (see `looks_between`
  /// in wire.cpp), so that it is cheap enough for every poll of a completion queue.
  void look(bool thoroughly) noexcept;
  /// Returns the next received packet, or null if there are no more.
  const packet* next();

  /// True if peers may deliver packets through rings without a system call. In this case, a thread
  /// has to poll, or to call `sleep`.
  bool is_watched() const noexcept { return !watched_.empty(); }
  /// Returns true if the descriptor will become readable when a packet arrives, or false if packets
  /// may have arrived already.
  bool sleep() noexcept;
  /// The time at which `look` must be called even without an event, or 0 for never.
  nanoseconds next_try() const noexcept;
  /// True if packets or notices may have arrived, or if a connection may accept packets again.
  /// Ignores incoming connections on which no message has been received yet, and those that wait to
  /// be accepted.
  bool has_arrived() const noexcept;

  sent send(std::uint32_t target_qpn, const packet_header& header, const iovec* payload,
            std::size_t pieces, payload_of whose = payload_of::program);

  /// Returns the processes that receive multicasts and Ethernet frames, each as the lowest queue
  /// pair number of its slot. The first call after each `look` is expensive, because it checks all
  /// slots.
  const std::vector<std::uint32_t>& hearers();
  /// Sets whether this process receives multicasts and Ethernet frames. Returns 0 or an errno
  /// value.
  int hear_multicasts(bool wanted) noexcept;

  /// Sends a packet now, or as soon as the connection accepts packets again. Drops it if the peer
  /// can't be reached, or if too many packets wait for this peer already. The queue pair that sends
  /// the packet may be destroyed before the packet is sent.
  void owe(const packet_header& header);

  /// The numbers of the queue pairs for which `wait_writable` was called, and which should now
  /// retry. The caller removes them.
  std::vector<std::uint32_t>& writable_again() noexcept { return writable_again_; }
  /// Adds `qpn` to `writable_again` when the connection to `target_qpn` accepts packets again or
  /// has failed.
  void wait_writable(std::uint32_t target_qpn, std::uint32_t qpn, turn when);

  /// Sets the descriptors of memory that peers map. Peers can write to `device_memory`, but not to
  /// `tables`. A negative number means that there is no such memory. The descriptors are sent to
  /// each process that completes a handshake from now on. The caller still owns them.
  void publish(int tables, int device_memory) noexcept { published_ = {tables, device_memory}; }
  /// Returns the process behind `target_qpn` if it shares memory and has completed the handshake.
  /// Otherwise returns null, and opens a connection if there is none, so that a later call may find
  /// the process.
  std::shared_ptr<const remote_process> find(std::uint32_t target_qpn);
  /// The processes that have connected to this one and share memory with it.
  std::vector<std::shared_ptr<const remote_process>> connected() const;

  /// Checks that `process` owns the queue pairs whose numbers have the same upper part as `qpn`.
  /// The kernel's information decides, because a peer's claims are not trusted. Without that
  /// information, for example for lack of a descriptor, usually returns true. Returns false if the
  /// owner can't be identified because its backlog is full. A call may be expensive, because it may
  /// have to open a connection to the owner's slot.
  bool belongs_to(std::uint32_t qpn, pid_t process);

  /// True if the process behind `target_qpn` may still answer. This is the case if an answer may be
  /// unread here, if the process exists and has not read everything that was sent to it, or if it
  /// can't be reached yet for lack of resources.
  bool may_still_answer(std::uint32_t target_qpn) const noexcept;

 private:
  int take_slot() noexcept;
  bool connect(std::uint32_t slot, outlet& way) noexcept;
  sent try_send(outlet& way, const packet_header& header, const iovec* payload, std::size_t pieces,
                payload_of whose = payload_of::device) noexcept;
  sent write(outlet& way, const packet_header& header, const iovec* payload, std::size_t pieces,
             payload_of whose) noexcept;
  bool wait_until_writable(outlet& way) noexcept;
  void block(std::uint32_t slot, outlet& way) noexcept;
  void unblock(std::uint32_t slot) noexcept;
  bool watch(std::uint32_t slot, outlet& way, std::uint32_t events) noexcept;
  void greet(outlet& way) noexcept;
  void hear_back(std::uint32_t slot) noexcept;
  void lose(std::uint32_t slot) noexcept;
  void wait_for_means(std::uint32_t slot, outlet& way, nanoseconds how_long) noexcept;
  void try_again() noexcept;
  void accept_some() noexcept;
  /// Closes a connection of the process that opened `added` if that process has too many.
  /// Otherwise, if there are too many connections, or too many on which no message has arrived,
  /// closes one on which no message has arrived, if there is one.
  void make_room_for(const inlet& added) noexcept;
  void watch_listener(std::uint32_t events) noexcept;
  void pause_listener(nanoseconds until) noexcept;
  void look_into_rings() noexcept;
  void hear(inlet& from) noexcept;
  void watch(inlet& from) noexcept;
  void make_ready(inlet& from) noexcept;
  /// Returns the next message. The result is empty if there is none. If the peer has sent invalid
  /// data, or has disconnected before the change to the ring, `open` is set to false as well.
  std::span<const std::byte> take(inlet& from, bool& open) noexcept;
  void release() noexcept;
  bool heed(inlet& from, const notice& told, int descriptor) noexcept;
  void answer(inlet& from, int descriptor) noexcept;
  void close_inlet(inlet& from) noexcept;
  bool well_formed(std::span<const std::byte> message) noexcept;
  /// True if there are unread messages from the process of this slot, or from a process whose slot
  /// is not known yet.
  bool has_unread_of(std::uint32_t slot) const noexcept;
  /// True if the process behind this connection may send packets on behalf of this queue pair.
  bool speaks_for(inlet& from, std::uint32_t qpn);

  std::array<int, 2> published_{-1, -1};
  int listener_ = -1;
  int epoll_ = -1;
  std::uint32_t slot_ = 0;
  std::vector<std::unique_ptr<outlet>> outlets_;
  std::vector<std::unique_ptr<inlet>> inlets_;
  std::vector<inlet*> ready_;
  /// The inlets with a ring that is polled; writers of the other rings send notices.
  std::vector<inlet*> watched_;
  /// The number of inlets without a ring.
  std::size_t by_socket_ = 0;
  std::size_t turn_ = 0;
  unsigned looks_ = 0;
  unsigned blocked_ = 0;  ///< the number of outlets that wait until their socket accepts packets
  std::vector<std::uint32_t> full_rings_;
  /// The slots to which no connection could be opened because of insufficient resources.
  std::vector<std::uint32_t> short_of_means_;
  nanoseconds next_connect_ = 0;           ///< when to retry `short_of_means_`; 0 for never
  nanoseconds listener_pauses_until_ = 0;  ///< the end of the pause; 0 for no pause
  /// The start of the current period of accepting, and the number of connections accepted in it.
  nanoseconds row_start_ = 0;
  unsigned accepted_ = 0;
  std::vector<std::uint32_t> writable_again_;
  /// A socket with the name by which others recognize that this process receives multicasts and
  /// Ethernet frames; negative if it doesn't.
  int ear_ = -1;
  std::vector<std::uint32_t> hearers_;
  bool hearers_known_ = false;
  /// The buffer for messages received from sockets.
  std::unique_ptr<std::byte[]> landing_;
  /// The inlet whose ring contains the current packet's payload.
  inlet* current_in_ = nullptr;
  packet current_{};
};

}  // namespace softverbs
