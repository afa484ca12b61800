// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace verbspp {

/// The side of a connection that a program is on.
enum class exchange_role : std::uint8_t {
  connecting,
  accepting,
};

/// The options of an exchange. The application, version and secret have to be the same at both
/// ends.
///
/// A plain value. The caller owns the text and bytes that the options refer to, which are copied
/// when the exchange starts.
struct exchange_options {
  /// The name of the application: up to 64 printable ASCII characters, the same at both ends. It
  /// may be empty.
  std::string_view application{};
  /// The version of the program's own protocol, the same at both ends.
  std::uint32_t version = 0;
  /// A secret shared by the programs that may connect to each other: 16 to 256 bytes, preferably 32
  /// random ones, the same at both ends. If the secret is empty, any program may connect. A peer
  /// that does not know the secret receives neither the endpoint nor the values. Both are
  /// encrypted, so an attacker that reads or relays the exchange learns no memory keys. RDMA
  /// traffic itself is not encrypted: an attacker that reads it learns the data and the keys in it.
  /// A secret can be used only if the library was built with libcrypto. docs/exchange.md lists the
  /// attackers that a secret keeps out.
  std::span<const std::byte> secret{};
  /// The side that this end is on. With a secret, the two ends have to be on different sides, so
  /// that two connections to one program can't answer each other's challenges. Without a secret,
  /// this option has no effect. An acceptor is always on the accepting side; a meeting has no
  /// sides.
  exchange_role role = exchange_role::connecting;
  /// True to tie the channel to the socket, if the peer's end does so, too, and both ends connect
  /// channels. Each channel then has a duplicate of the socket, which is one more descriptor, and
  /// watches it for `hang_up`. When one end is closed or destroyed, or its process ends, the other
  /// end breaks (`cancelled`), within 50 ms if it waits or its event loop polls it. The program may
  /// close its own descriptor. When a process closes the last of its channels that are tied to a
  /// socket, the socket is shut down for sending. Set this to false if the program sends over the
  /// socket after it has closed the channel, or if it uses the socket to connect another channel
  /// instead of renewing this one.
  bool ties_socket = true;
};

}  // namespace verbspp
