// SPDX-License-Identifier: Apache-2.0
#include <verbspp/device/guid.hpp>

#include <array>
#include <cstdio>
#include <ostream>
#include <string>

namespace verbspp {

std::string to_string(guid identifier) {
  const auto group = [&](unsigned shift) {
    return static_cast<unsigned>(identifier.value() >> shift & 0xffff);
  };
  std::array<char, sizeof "0123:4567:89ab:cdef"> text{};
  std::snprintf(text.data(), text.size(), "%04x:%04x:%04x:%04x", group(48), group(32), group(16),
                group(0));
  return text.data();
}

std::ostream& operator<<(std::ostream& out, guid identifier) {
  return out << to_string(identifier);
}

}  // namespace verbspp
