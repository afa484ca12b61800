// SPDX-License-Identifier: Apache-2.0
#include <verbspp/qp/status.hpp>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <ostream>
#include <string>

namespace verbspp {

std::ostream& operator<<(std::ostream& out, const queue_pair_status& status) {
  std::array<char, 96> numbers{};
  std::snprintf(numbers.data(), numbers.size(),
                ", destination 0x%06" PRIx32 ", PSN 0x%06" PRIx32 " / 0x%06" PRIx32 ", MTU ",
                status.destination().value(), status.send_psn().value(),
                status.receive_psn().value());
  return out << to_string(status.state()) << (status.is_draining() ? ", draining" : "")
             << numbers.data() << std::to_string(status.mtu().bytes());
}

}  // namespace verbspp
