// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// An event of the connection manager. The values equal those of `rdma_cm_event_type`.
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
  /// The peer has ended the connection; or this side has ended it, and the peer has acknowledged
  /// that or not answered in time.
  disconnected,
  device_removal,  ///< all objects created on the device have to be destroyed
  multicast_join,
  multicast_error,
  address_change,  ///< the address has moved to a different device: connect again
  time_wait_exit,  ///< no packet of the connection is in flight any more
};

/// The name of the event, such as "established"; "unknown event" for other values.
[[nodiscard]] const char* to_string(cm_event event) noexcept;

}  // namespace verbspp
