// SPDX-License-Identifier: Apache-2.0
#include <verbspp/device/gid.hpp>

#include <arpa/inet.h>

#include <cstring>
#include <ostream>

namespace verbspp {

gid gid::from_native(const ibv_gid& native) noexcept {
  gid result;
  std::memcpy(result.bytes.data(), native.raw, result.bytes.size());
  return result;
}

ibv_gid gid::native() const noexcept {
  ibv_gid result;
  std::memcpy(result.raw, bytes.data(), bytes.size());
  return result;
}

std::string to_string(const gid& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET6, address.bytes.data(), text.data(), text.size());
  return text.data();
}

std::ostream& operator<<(std::ostream& out, const gid& address) {
  return out << to_string(address);
}

const char* to_string(gid_type type) noexcept {
  switch (type) {
    case gid_type::infiniband:
      return "InfiniBand";
    case gid_type::roce_v1:
      return "RoCE v1";
    case gid_type::roce_v2:
      return "RoCE v2";
  }
  return "unknown GID type";
}

}  // namespace verbspp
