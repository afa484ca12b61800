// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>

namespace verbspp::detail {

struct tied_channels;

/// A duplicate of the socket over which a channel was connected. The peer's channel usually watches
/// the other end of that socket. Destroying this object closes the duplicate, but does not shut the
/// socket down.
class tied_socket {
 public:
  tied_socket() noexcept = default;
  tied_socket(const tied_socket&) = delete;
  tied_socket& operator=(const tied_socket&) = delete;
  tied_socket(tied_socket&& other) noexcept;
  tied_socket& operator=(tied_socket&& other) noexcept;
  ~tied_socket() { drop(); }

  /// Duplicates the socket, and counts the channel among those that are tied to it.
  /// \errors `resource_exhausted` if no descriptor or no memory is left; those of the operating
  /// system
  [[nodiscard]] static result<tied_socket> duplicate_of(int descriptor) noexcept;

  /// The descriptor of the duplicate; -1 if there is none.
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  /// Shuts the socket down for sending, which notifies a peer that watches the socket. A no-op if
  /// other channels of this process are tied to the socket, and in a forked child process that has
  /// not opened a device itself.
  void tell_end() const noexcept;

 private:
  void drop() noexcept;

  int descriptor_ = -1;
  tied_channels* channels_ = nullptr;  ///< shared by all channels that are tied to the socket
};

}  // namespace verbspp::detail
