// SPDX-License-Identifier: Apache-2.0
#include <verbspp/qp/state.hpp>

namespace verbspp {

const char* to_string(transport type) noexcept {
  switch (type) {
    case transport::rc:
      return "RC";
    case transport::uc:
      return "UC";
    case transport::ud:
      return "UD";
  }
  return "unknown transport";
}

const char* to_string(queue_pair_state state) noexcept {
  switch (state) {
    case queue_pair_state::reset:
      return "RESET";
    case queue_pair_state::init:
      return "INIT";
    case queue_pair_state::ready_to_receive:
      return "RTR";
    case queue_pair_state::ready_to_send:
      return "RTS";
    case queue_pair_state::send_queue_drained:
      return "SQD";
    case queue_pair_state::send_queue_error:
      return "SQE";
    case queue_pair_state::error:
      return "ERR";
  }
  return "unknown state";
}

}  // namespace verbspp
