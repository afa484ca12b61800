// SPDX-License-Identifier: Apache-2.0
#include "device/socket_gid.hpp"
#include "device/udp_socket.hpp"
#include <verbspp/device/interface_address.hpp>

#include <ifaddrs.h>
#include <linux/if_vlan.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>

namespace verbspp {

namespace {

constexpr const char* asking = "getifaddrs";

/// Returns the prefix length that an address has when it is written as a GID: the number of ones in
/// its netmask, plus 96 for IPv4. Returns 128 if there is no netmask.
std::uint8_t prefix_length_of(const ifaddrs& entry, bool is_ipv4) noexcept {
  std::optional<gid> mask = detail::gid_of(entry.ifa_netmask);
  if (!mask) return 128;
  if (is_ipv4) std::fill_n(mask->bytes.begin(), detail::mapped_bytes, std::uint8_t{0xff});
  int bits = 0;
  for (const std::uint8_t byte : mask->bytes) bits += std::popcount(byte);
  return static_cast<std::uint8_t>(bits);
}

/// Queries the VLAN of a network interface from the kernel; only VLAN interfaces have one.
class vlan_query {
 public:
  [[nodiscard]] std::uint16_t tag_of(const char* interface) const noexcept {
    vlan_ioctl_args asked{};
    asked.cmd = GET_VLAN_VID_CMD;
    std::strncpy(asked.device1, interface, sizeof asked.device1 - 1);
    if (::ioctl(socket_.descriptor(), SIOCGIFVLAN, &asked) != 0) return interface_address::untagged;
    return static_cast<std::uint16_t>(asked.u.VID);
  }

 private:
  detail::udp_socket socket_{AF_INET};
};

interface_address entry_from(const ifaddrs& native, const gid& address,
                             const vlan_query& vlans) noexcept {
  constexpr unsigned working = IFF_UP | IFF_RUNNING;
  return {.address = address,
          .prefix_length = prefix_length_of(native, address.is_ipv4_mapped()),
          .interface_index = ::if_nametoindex(native.ifa_name),
          .vlan = vlans.tag_of(native.ifa_name),
          .is_up = (native.ifa_flags & working) == working,
          .is_loopback = (native.ifa_flags & IFF_LOOPBACK) != 0};
}

}  // namespace

bool share_prefix(const gid& left, const gid& right, unsigned bits) noexcept {
  const std::size_t whole = bits / 8;
  if (!std::equal(left.bytes.begin(), left.bytes.begin() + static_cast<std::ptrdiff_t>(whole),
                  right.bytes.begin()))
    return false;
  if (bits % 8 == 0) return true;
  const unsigned unlike = left.bytes[whole] ^ right.bytes[whole];
  return unlike >> (8 - bits % 8) == 0;
}

bool interface_address::shares_subnet_with(const gid& other) const noexcept {
  return address.is_ipv4_mapped() == other.is_ipv4_mapped() &&
         share_prefix(address, other, prefix_length);
}

result<interface_table> interface_table::query() noexcept {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return error::from_errno(errno, asking);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::size_t size = 0;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next)
    if (detail::gid_of(each->ifa_addr)) ++size;
  detail::owned<interface_address[]> entries(new (std::nothrow) interface_address[size]);
  if (!entries) return error::from_errno(ENOMEM, asking);
  const vlan_query vlans;
  interface_address* next = entries.get();
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next)
    if (const auto address = detail::gid_of(each->ifa_addr))
      *next++ = entry_from(*each, *address, vlans);
  return interface_table(std::move(entries), size);
}

}  // namespace verbspp
