// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace verbspp {

/// What both ends of an exchange have to agree on, beside the types of what they send.
///
/// A plain value. The text belongs to the caller, and is copied where the exchange starts.
struct exchange_options {
  /// What the program calls itself: up to 64 printable characters, the same at both ends. Empty, as
  /// at the peer, if it does not matter.
  std::string_view application{};
  /// The version of the program's own protocol, the same at both ends.
  std::uint32_t version = 0;
};

}  // namespace verbspp
