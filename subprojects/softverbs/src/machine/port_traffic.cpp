// SPDX-License-Identifier: Apache-2.0
#include "machine/port_traffic.hpp"

namespace softverbs {

constinit std::array<port_traffic, std::size_t{max_ports} * max_devices> port_traffic::all_{};

}  // namespace softverbs
