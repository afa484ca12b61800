// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/queue/completion_queue.hpp>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace verbspp {

/// The state of a channel.
enum class channel_state : std::uint8_t {
  empty,      ///< default constructed, or moved from
  prepared,   ///< before the handshake; has an endpoint for the peer
  connected,  ///< after the handshake
  broken,     ///< after a failure, see `failure`; `renew` prepares a new connection
  closed,     ///< after `close`; `renew` prepares a new connection
};

[[nodiscard]] const char* to_string(channel_state state) noexcept;

/// The cause of the failure of a channel.
///
/// A single failure, the root, ends all outstanding requests. The requests that were flushed
/// because of it are only counted.
class channel_failure {
 public:
  channel_failure(const error& root, const gid& peer) noexcept : root_(root), peer_(peer) {}

  /// The failure of a request (`work_error::from` returns its details), of the handshake, of the
  /// device, or of a wait (see `ended_by`); or an error that says that the program has closed the
  /// channel.
  [[nodiscard]] const error& root() const noexcept { return root_; }
  /// The address of the peer, which on RoCE is an IP address. Zero if the channel was not
  /// connected, or if a connection manager has connected it over an InfiniBand path without GIDs.
  [[nodiscard]] const gid& peer() const noexcept { return peer_; }
  /// The number of requests that were flushed. If the root is a flushed request, because the cause
  /// is unknown, the number includes it.
  [[nodiscard]] std::uint64_t flushed() const noexcept { return flushed_; }
  /// The event that ended a wait and broke the channel: `limit` (the root's kind is `timed_out`, or
  /// `cancelled` if a stop was requested), `file_descriptor` (the watched descriptor or the tied
  /// socket), or `async_event`. Empty if no such event broke the channel, for example because a
  /// request failed, or the program closed the channel.
  [[nodiscard]] std::optional<wait_end> ended_by() const noexcept { return ended_by_; }
  /// One line with the root, the peer's address if it is known, and the number of flushed requests.
  [[nodiscard]] std::string message() const;

  /// Used by the library only.
  void replace_root(const error& root) noexcept { root_ = root; }
  /// Used by the library only.
  void note_end(wait_end end) noexcept { ended_by_ = end; }
  /// Used by the library only.
  void count_flushed() noexcept { ++flushed_; }

 private:
  error root_;
  gid peer_;
  std::uint64_t flushed_ = 0;
  std::optional<wait_end> ended_by_{};
};

std::ostream& operator<<(std::ostream& out, const channel_failure& failure);

}  // namespace verbspp
