// SPDX-License-Identifier: Apache-2.0
#include <verbspp/memory/keys.hpp>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <ostream>

namespace verbspp {

namespace {

std::ostream& print(std::ostream& out, std::uint32_t key) {
  std::array<char, 12> text{};
  std::snprintf(text.data(), text.size(), "0x%08" PRIx32, key);
  return out << text.data();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, remote_key key) { return print(out, key.value()); }
std::ostream& operator<<(std::ostream& out, local_key key) { return print(out, key.value()); }

}  // namespace verbspp
