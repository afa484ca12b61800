// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/cm/private_data.hpp>

#include <cstdint>

namespace verbspp {

/// Why a peer's manager rejects; the values are those of the InfiniBand specification. Others than
/// these are numbers.
enum class cm_rejection_reason : std::uint16_t {
  unknown = 0,  ///< the link doesn't tell: iWARP
  no_queue_pair = 1,
  no_resources = 3,
  timeout = 4,
  unsupported_request = 5,
  no_listener = 8,
  stale_connection = 10,
  not_enough_responder_resources = 27,
  by_the_program = 28,  ///< the peer's program rejected, or let the request go
  vendor_option_not_supported = 35,
};

/// What it means, in a sentence.
[[nodiscard]] const char* to_string(cm_rejection_reason reason) noexcept;

/// What a peer that rejects tells.
struct cm_rejection {
  cm_rejection_reason reason = cm_rejection_reason::unknown;
  cm_rejection_data data{};
};

}  // namespace verbspp
