// SPDX-License-Identifier: Apache-2.0
#include <verbspp/cm/cm_connection.hpp>
#include <verbspp/cm/cm_event.hpp>
#include <verbspp/cm/cm_options.hpp>

#include <rdma/rdma_cma.h>

namespace verbspp {

static_assert(static_cast<int>(cm_event::address_resolved) == RDMA_CM_EVENT_ADDR_RESOLVED);
static_assert(static_cast<int>(cm_event::address_error) == RDMA_CM_EVENT_ADDR_ERROR);
static_assert(static_cast<int>(cm_event::route_resolved) == RDMA_CM_EVENT_ROUTE_RESOLVED);
static_assert(static_cast<int>(cm_event::route_error) == RDMA_CM_EVENT_ROUTE_ERROR);
static_assert(static_cast<int>(cm_event::connect_request) == RDMA_CM_EVENT_CONNECT_REQUEST);
static_assert(static_cast<int>(cm_event::connect_response) == RDMA_CM_EVENT_CONNECT_RESPONSE);
static_assert(static_cast<int>(cm_event::connect_error) == RDMA_CM_EVENT_CONNECT_ERROR);
static_assert(static_cast<int>(cm_event::unreachable) == RDMA_CM_EVENT_UNREACHABLE);
static_assert(static_cast<int>(cm_event::rejected) == RDMA_CM_EVENT_REJECTED);
static_assert(static_cast<int>(cm_event::established) == RDMA_CM_EVENT_ESTABLISHED);
static_assert(static_cast<int>(cm_event::disconnected) == RDMA_CM_EVENT_DISCONNECTED);
static_assert(static_cast<int>(cm_event::device_removal) == RDMA_CM_EVENT_DEVICE_REMOVAL);
static_assert(static_cast<int>(cm_event::multicast_join) == RDMA_CM_EVENT_MULTICAST_JOIN);
static_assert(static_cast<int>(cm_event::multicast_error) == RDMA_CM_EVENT_MULTICAST_ERROR);
static_assert(static_cast<int>(cm_event::address_change) == RDMA_CM_EVENT_ADDR_CHANGE);
static_assert(static_cast<int>(cm_event::time_wait_exit) == RDMA_CM_EVENT_TIMEWAIT_EXIT);

const char* to_string(cm_event event) noexcept {
  switch (event) {
    case cm_event::address_resolved:
      return "address resolved";
    case cm_event::address_error:
      return "address error";
    case cm_event::route_resolved:
      return "route resolved";
    case cm_event::route_error:
      return "route error";
    case cm_event::connect_request:
      return "connect request";
    case cm_event::connect_response:
      return "connect response";
    case cm_event::connect_error:
      return "connect error";
    case cm_event::unreachable:
      return "unreachable";
    case cm_event::rejected:
      return "rejected";
    case cm_event::established:
      return "established";
    case cm_event::disconnected:
      return "disconnected";
    case cm_event::device_removal:
      return "device removal";
    case cm_event::multicast_join:
      return "multicast join";
    case cm_event::multicast_error:
      return "multicast error";
    case cm_event::address_change:
      return "address change";
    case cm_event::time_wait_exit:
      return "time-wait exit";
  }
  return "unknown event";
}

const char* to_string(cm_state state) noexcept {
  switch (state) {
    case cm_state::empty:
      return "empty";
    case cm_state::connected:
      return "connected";
    case cm_state::disconnected:
      return "disconnected";
    case cm_state::over:
      return "over";
    case cm_state::removed:
      return "removed";
  }
  return "unknown state";
}

const char* to_string(cm_rejection_reason reason) noexcept {
  switch (reason) {
    case cm_rejection_reason::unknown:
      return "the peer rejected the request, and gave no reason (iWARP never gives one): check "
             "that a program listens at this address and port, and see its output";
    case cm_rejection_reason::no_queue_pair:
      return "the peer's device has no queue pairs left: destroy some at the peer";
    case cm_rejection_reason::no_resources:
      return "the peer has no resources left for the connection: close other connections at the "
             "peer";
    case cm_rejection_reason::timeout:
      return "the peer timed out or gave up while it waited for the next message of the "
             "connection's setup: answer sooner, let the peer wait longer, or check the path for "
             "lost packets";
    case cm_rejection_reason::unsupported_request:
      return "the peer's connection manager does not support this kind of request: compare the "
             "drivers and kernels of both ends";
    case cm_rejection_reason::no_listener:
      return "no server listens for connections at this address and port: start the server, or "
             "check the address and port";
    case cm_rejection_reason::stale_connection:
      return "the peer's connection manager still has a connection with this queue pair's number: "
             "try again with another queue pair";
    case cm_rejection_reason::not_enough_responder_resources:
      return "the peer cannot answer that many reads and atomics at once: request fewer "
             "(max_reads_as_initiator)";
    case cm_rejection_reason::by_the_program:
      return "the peer's program rejected or abandoned the connection (see its output), or listens "
             "at this port on another address (check the address)";
    case cm_rejection_reason::vendor_option_not_supported:
      return "the peer rejected a vendor-specific option";
  }
  return "the peer rejected the connection: look up the number of its reason "
         "(cm_rejection::reason) in the InfiniBand specification";
}

}  // namespace verbspp
