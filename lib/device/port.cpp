// SPDX-License-Identifier: Apache-2.0
#include <verbspp/device/port.hpp>

#include <ostream>
#include <string>

namespace verbspp {

static_assert(path_mtu(256).native() == IBV_MTU_256 && path_mtu(512).native() == IBV_MTU_512 &&
              path_mtu(1024).native() == IBV_MTU_1024 && path_mtu(2048).native() == IBV_MTU_2048 &&
              path_mtu(4096).native() == IBV_MTU_4096);

path_mtu detail::mtu_from(const ibv_mtu& code) noexcept {
  const auto mtu = path_mtu::from_code(number_of(code));
  return mtu.has_value() ? mtu.assume_value() : path_mtu{};
}

path_mtu port_attributes::active_mtu() const noexcept {
  return detail::mtu_from(native_.active_mtu);
}

path_mtu port_attributes::max_mtu() const noexcept { return detail::mtu_from(native_.max_mtu); }

const char* to_string(port_state state) noexcept {
  switch (state) {
    case port_state::no_change:
      return "no change";
    case port_state::down:
      return "down";
    case port_state::initializing:
      return "initializing";
    case port_state::armed:
      return "armed";
    case port_state::active:
      return "active";
    case port_state::active_deferred:
      return "active deferred";
  }
  return "unknown port state";
}

const char* to_string(link_layer layer) noexcept {
  switch (layer) {
    case link_layer::infiniband:
      return "InfiniBand";
    case link_layer::ethernet:
      return "Ethernet";
  }
  return "unknown link layer";
}

std::ostream& operator<<(std::ostream& out, const port_attributes& port) {
  return out << "port " << std::to_string(port.number().value()) << ": " << to_string(port.state())
             << ", " << to_string(port.link_layer()) << ", LID "
             << std::to_string(port.lid().value()) << ", active MTU "
             << std::to_string(port.active_mtu().bytes());
}

std::ostream& operator<<(std::ostream& out, const gid_entry& entry) {
  return out << "GID " << std::to_string(entry.index.value()) << ": " << entry.address << " ("
             << to_string(entry.type) << ')';
}

}  // namespace verbspp
