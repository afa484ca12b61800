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

/// What both ends of an exchange have to agree on, beside the types of what they send.
///
/// A plain value. What it refers to belongs to the caller, and is copied where the exchange starts.
struct exchange_options {
  /// What the program calls itself: up to 64 printable characters, the same at both ends. Empty, as
  /// at the peer, if it does not matter.
  std::string_view application{};
  /// The version of the program's own protocol, the same at both ends.
  std::uint32_t version = 0;
  /// 16 to 256 bytes that only those know who may connect, the same at both ends, best 32 random
  /// ones; none for everybody. A peer that does not know it gets neither endpoint nor values, and
  /// both travel encrypted; who can read the network, or hands on what others send, learns no key
  /// of memory. RDMA itself is not encrypted, and knows no more than these keys. Takes a library
  /// that was built with libcrypto. docs/exchange.md lists the attackers that it keeps out.
  std::span<const std::byte> secret{};
  /// The side that this end is on. With a secret, the two ends have to be on different sides, so
  /// that two connections to one program can't answer each other's challenges. Without a secret it
  /// makes no difference. An acceptor is always on the accepting side; a meeting has no sides.
  exchange_role role = exchange_role::connecting;
};

}  // namespace verbspp
