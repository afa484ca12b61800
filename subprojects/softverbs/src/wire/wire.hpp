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

/// What became of a packet to be sent.
enum class sent : std::uint8_t {
  yes,
  lost,     ///< nobody there: as on a network, no error
  blocked,  ///< the peer has to read first; `writable_again` tells when to try again
  fault,    ///< the payload's memory isn't mapped
};

/// Who goes first when a connection can take more again. Without an order, one
/// that fills it each time starves the others, and answers have to overtake data,
/// or two sides that send a lot would never hear that it arrived.
enum class turn : std::uint8_t {
  answer,  ///< an acknowledgement, a refusal, or what was read
  next,    ///< could send nothing this time
  last,    ///< could send something this time
};

/// Whose memory a payload is: what the program has given may not be there any more.
enum class payload_of : std::uint8_t { program, device };

/// A packet that came in. Valid until the next one is asked for. Its payload may be in memory that
/// its sender can still change: nothing of it is to be read twice.
struct packet {
  packet_header header;
  const std::byte* payload;
};

struct outlet;
struct inlet;

/// Moves packets between processes, and within this one, by sockets in the
/// abstract Unix namespace; so nothing is left behind by a crash.
///
/// A process listens at a slot, whose number is the upper part of the queue pair
/// numbers. All that it has to say to another process goes through one connection
/// that it opened to the other's slot, and nothing comes back through that one:
/// so there is no order in which two processes can open or close connections that
/// would matter, and this very process is a peer like any other.
class wire {
 public:
  static constexpr unsigned index_bits = 14;
  static constexpr std::uint32_t index_mask = (1U << index_bits) - 1;
  static constexpr std::uint32_t slots = 1U << (24 - index_bits);
  /// Nobody has the first and the last one, in which reserved numbers lie.
  static constexpr std::uint32_t last_slot = slots - 2;

  wire();
  wire(const wire&) = delete;
  wire& operator=(const wire&) = delete;
  ~wire();

  /// Takes a free slot; 0 or an errno.
  int open();

  /// From here on, requests to other processes that look for the end of the connection find that it
  /// is gone; all else stays until `close`.
  void part() noexcept;
  /// Says what is still owed to others, as far as they take it at once, and leaves.
  void close() noexcept;

  /// Leaves without a word: for a child of fork, whose parent goes on.
  void abandon() noexcept;

  bool is_open() const noexcept { return listener_ >= 0; }
  std::uint32_t slot() const noexcept { return slot_; }
  /// Readable when there may be something to do.
  int descriptor() const noexcept { return epoll_; }

  /// Looks for what has come in. Cheap enough for each poll.
  void look(bool thoroughly) noexcept;
  /// The next packet of those, null when there is no more.
  const packet* next();

  /// Packets may come in without a system call of their senders: somebody has to look, or to sleep.
  bool is_watched() const noexcept { return !watched_.empty(); }
  /// From here on, the descriptor tells of all that comes in. False if something has.
  bool sleep() noexcept;
  /// When there is something to look for by itself, 0 for never.
  nanoseconds next_try() const noexcept;
  /// Whether something is there to be looked for, of those who have ever said something.
  bool has_arrived() const noexcept;

  sent send(std::uint32_t target_qpn, const packet_header& header, const iovec* payload,
            std::size_t pieces, payload_of whose = payload_of::program);

  /// The processes that hear multicasts, by what takes the place of a queue pair's
  /// number. Not cheap: looked for anew after each `look`.
  const std::vector<std::uint32_t>& hearers();
  /// Whether this process is one of them; 0 or an errno.
  int hear_multicasts(bool wanted) noexcept;

  /// Sends it now or when the peer has read, on behalf of a queue pair that won't
  /// be there any more.
  void owe(const packet_header& header);

  /// Who waited for a connection that can take more now.
  std::vector<std::uint32_t>& writable_again() noexcept { return writable_again_; }
  /// `qpn` is to be found there when the way to `target_qpn` is free.
  void wait_writable(std::uint32_t target_qpn, std::uint32_t qpn, turn when);

  /// What all others are to map, the first without being able to write there: the descriptors go to
  /// each one that connects from now on, and stay the caller's. Negative for nothing.
  void publish(int tables, int device_memory) noexcept { published_ = {tables, device_memory}; }
  /// The process behind `target_qpn`, if it shares memory and has answered the greeting. Null
  /// otherwise; then it is connected to, and may be there later.
  std::shared_ptr<const remote_process> find(std::uint32_t target_qpn);
  /// The processes that are connected to this one, and share memory with it.
  std::vector<std::shared_ptr<const remote_process>> connected() const;

  /// Whether `process` is the one whose queue pairs have this number in common with `qpn`, as far
  /// as the kernel tells; what somebody says of itself isn't believed. Not cheap before both have
  /// exchanged something.
  bool belongs_to(std::uint32_t qpn, pid_t process);

  /// Whether an answer of the process behind `target_qpn` may be unread here, or the process is
  /// there and has not read all that it was sent.
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
  /// Who has opened too many connections loses one of them, not somebody else.
  void make_room_for(const inlet& added) noexcept;
  void watch_listener(std::uint32_t events) noexcept;
  void pause_listener(nanoseconds until) noexcept;
  void look_into_rings() noexcept;
  void hear(inlet& from) noexcept;
  void watch(inlet& from) noexcept;
  void make_ready(inlet& from) noexcept;
  /// The next message; empty if there is none, or the connection isn't open any more.
  std::span<const std::byte> take(inlet& from, bool& open) noexcept;
  void release() noexcept;
  bool heed(inlet& from, const notice& told, int descriptor) noexcept;
  void answer(inlet& from, int descriptor) noexcept;
  void close_inlet(inlet& from) noexcept;
  bool well_formed(std::span<const std::byte> message) noexcept;
  /// Whether there are unread packets from the process of this slot, or from one whose slot is not
  /// known yet.
  bool has_unread_of(std::uint32_t slot) const noexcept;
  /// Whether who is connected there may say something in the name of this queue pair.
  bool speaks_for(inlet& from, std::uint32_t qpn);

  std::array<int, 2> published_{-1, -1};
  int listener_ = -1;
  int epoll_ = -1;
  std::uint32_t slot_ = 0;
  std::vector<std::unique_ptr<outlet>> outlets_;
  std::vector<std::unique_ptr<inlet>> inlets_;
  std::vector<inlet*> ready_;
  /// Those with a ring that are looked into; the others' writers send notices.
  std::vector<inlet*> watched_;
  /// Those without a ring.
  std::size_t by_socket_ = 0;
  std::size_t turn_ = 0;
  unsigned looks_ = 0;
  unsigned blocked_ = 0;  ///< sockets
  std::vector<std::uint32_t> full_rings_;
  /// Those that couldn't be connected to for want of something.
  std::vector<std::uint32_t> short_of_means_;
  nanoseconds next_connect_ = 0;           ///< for these; 0 for never
  nanoseconds listener_pauses_until_ = 0;  ///< 0 if it doesn't
  /// How many were accepted since then.
  nanoseconds row_start_ = 0;
  unsigned accepted_ = 0;
  std::vector<std::uint32_t> writable_again_;
  /// Holds the name by which others find out that this process hears multicasts.
  int ear_ = -1;
  std::vector<std::uint32_t> hearers_;
  bool hearers_known_ = false;
  /// Where what comes by a socket lands.
  std::unique_ptr<std::byte[]> landing_;
  /// Whose ring the current packet's payload is still in.
  inlet* current_in_ = nullptr;
  packet current_{};
};

}  // namespace softverbs
