// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "wire/packet.hpp"
#include "wire/staging_buffer.hpp"

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
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

/// A packet that came in. Valid until the next one is asked for.
struct packet {
  packet_header header;
  const std::byte* payload;
};

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

  /// Says what is still owed to others, as far as they take it at once, and leaves.
  void close() noexcept;

  /// Leaves without a word: for a child of fork, whose parent goes on.
  void abandon() noexcept;

  bool is_open() const noexcept { return listener_ >= 0; }
  std::uint32_t slot() const noexcept { return slot_; }
  /// Readable when there may be something to do.
  int descriptor() const noexcept { return epoll_; }
  const staging_buffer& staging() const noexcept { return staging_; }

  /// Looks for what has come in. Cheap enough for each poll.
  void look(bool thoroughly) noexcept;
  /// The next packet of those, null when there is no more.
  const packet* next() noexcept;

  sent send(std::uint32_t target_qpn, const packet_header& header, const iovec* payload,
            std::size_t pieces);

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

  /// Whether the process behind `target_qpn` is there but has not read all that it
  /// was sent.
  bool lags_behind(std::uint32_t target_qpn) const noexcept;

 private:
  struct outlet;
  struct inlet;

  int take_slot() noexcept;
  bool connect(std::uint32_t slot, outlet& way) noexcept;
  sent try_send(outlet& way, const packet_header& header, const iovec* payload,
                std::size_t pieces) noexcept;
  void block(std::uint32_t slot, outlet& way) noexcept;
  void unblock(std::uint32_t slot) noexcept;
  void accept_all() noexcept;
  void close_inlet(inlet& from) noexcept;
  bool well_formed(std::size_t received) noexcept;

  int listener_ = -1;
  int epoll_ = -1;
  std::uint32_t slot_ = 0;
  std::vector<std::unique_ptr<outlet>> outlets_;
  std::vector<std::unique_ptr<inlet>> inlets_;
  std::vector<inlet*> ready_;
  std::size_t turn_ = 0;
  unsigned looks_ = 0;
  unsigned blocked_ = 0;
  std::vector<std::uint32_t> writable_again_;
  /// Holds the name by which others find out that this process hears multicasts.
  int ear_ = -1;
  std::vector<std::uint32_t> hearers_;
  bool hearers_known_ = false;
  staging_buffer staging_;
  packet current_{};
};

}  // namespace softverbs
