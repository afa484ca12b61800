// SPDX-License-Identifier: Apache-2.0
#include <verbspp/memory/access.hpp>

#include <array>
#include <cstdio>
#include <ostream>
#include <utility>

namespace verbspp {

std::ostream& operator<<(std::ostream& out, access_flags rights) {
  static constexpr std::array<std::pair<access_flags, const char*>, 9> names{
      {{access::local_write, "local write"},
       {access::remote_write, "remote write"},
       {access::remote_read, "remote read"},
       {access::remote_atomic, "remote atomic"},
       {access::flush_global, "flush global"},
       {access::flush_persistent, "flush persistent"},
       {access::window_bind, "window bind"},
       {access::on_demand, "on demand"},
       {access::relaxed_ordering, "relaxed ordering"}}};
  if (rights.empty()) return out << "local read";
  const char* separator = "";
  for (const auto& [right, name] : names) {
    if (!rights.contains(right)) continue;
    out << separator << name;
    separator = "|";
    rights = rights - right;
  }
  if (!rights.empty()) {
    std::array<char, 16> rest{};
    std::snprintf(rest.data(), rest.size(), "0x%x", rights.bits);
    out << separator << rest.data();
  }
  return out;
}

}  // namespace verbspp
