// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// What the connection manager tells; the values are those of `rdma_cm_event_type`.
enum class cm_event : std::uint32_t {
  address_resolved,
  address_error,
  route_resolved,
  route_error,
  connect_request,
  connect_response,
  connect_error,
  unreachable,
  rejected,
  established,
  disconnected,    ///< the peer has ended the connection, or answered that this side did
  device_removal,  ///< what was made on the device has to be destroyed
  multicast_join,
  multicast_error,
  address_change,  ///< the address has moved to another device: connect anew
  time_wait_exit,  ///< nothing of the connection is under way in the network any more
};

/// "established" and so on; "unknown event" for what this version does not know.
[[nodiscard]] const char* to_string(cm_event event) noexcept;

}  // namespace verbspp
