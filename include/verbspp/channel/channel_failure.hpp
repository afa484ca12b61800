// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

#include <cstdint>
#include <iosfwd>
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
  /// One line: the root, and how many requests went with it.
  [[nodiscard]] std::string message() const;

  /// For the library.
  void replace_root(const error& root) noexcept { root_ = root; }
  /// For the library.
  void count_flushed() noexcept { ++flushed_; }

 private:
  error root_;
  std::uint64_t flushed_ = 0;
};

std::ostream& operator<<(std::ostream& out, const channel_failure& failure);

}  // namespace verbspp
