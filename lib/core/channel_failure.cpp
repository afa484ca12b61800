// SPDX-License-Identifier: Apache-2.0
#include <verbspp/core/channel_failure.hpp>

#include <ostream>
#include <string>

namespace verbspp {

const char* to_string(channel_state state) noexcept {
  switch (state) {
    case channel_state::empty:
      return "empty";
    case channel_state::prepared:
      return "prepared";
    case channel_state::connected:
      return "connected";
    case channel_state::broken:
      return "broken";
    case channel_state::closed:
      return "closed";
  }
  return "unknown";
}

std::string channel_failure::message() const {
  const std::string peer = peer_.is_zero() ? "" : "peer: " + to_string(peer_) + ", ";
  return root_.message() + " (" + peer + "requests flushed: " + std::to_string(flushed_) + ")";
}

std::ostream& operator<<(std::ostream& out, const channel_failure& failure) {
  return out << failure.message();
}

}  // namespace verbspp
