// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>
#include <verbspp/queue/completion_queue.hpp>

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace verbspp {

/// Where a channel is in its life.
enum class channel_state : std::uint8_t {
  empty,      ///< default constructed, or moved from
  prepared,   ///< it has an endpoint, and takes receives
  connected,  ///< after the handshake
  broken,     ///< something failed: `failure` tells, `renew` prepares a new connection
  closed,     ///< by `close`; `renew` opens it again
};

[[nodiscard]] const char* to_string(channel_state state) noexcept;

/// Why a channel is broken.
///
/// One failure ends everything that is outstanding. What failed first is the root; what was flushed
/// behind it says nothing, and is only counted.
class channel_failure {
 public:
  explicit channel_failure(const error& root) noexcept : root_(root) {}

  /// What went wrong: a request (`work_error::from` has the rest), the limit of a wait, the device.
  [[nodiscard]] const error& root() const noexcept { return root_; }
  /// How many requests were given up because of it.
  [[nodiscard]] std::uint64_t flushed() const noexcept { return flushed_; }
  /// What ended the wait with which the connection was given up: `limit`, of which the root's kind
  /// tells whether the time had come (`timed_out`) or a stop was requested (`cancelled`);
  /// `file_descriptor`, the one of `channel::watch`; `async_event`. Empty if it was no wait: a
  /// request failed, or the program closed the channel.
  [[nodiscard]] std::optional<wait_end> ended_by() const noexcept { return ended_by_; }
  /// One line: the root, and how many requests went with it.
  [[nodiscard]] std::string message() const;

  /// For the library.
  void replace_root(const error& root) noexcept { root_ = root; }
  /// For the library.
  void note_end(wait_end end) noexcept { ended_by_ = end; }
  /// For the library.
  void count_flushed() noexcept { ++flushed_; }

 private:
  error root_;
  std::uint64_t flushed_ = 0;
  std::optional<wait_end> ended_by_{};
};

std::ostream& operator<<(std::ostream& out, const channel_failure& failure);

}  // namespace verbspp
