// SPDX-License-Identifier: Apache-2.0
#include "wire/address.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace softverbs {
namespace {

constexpr std::uint16_t first_multicast_lid = 0xc000;
constexpr std::uint16_t permissive_lid = 0xffff;

std::optional<std::uint8_t> index_of(unsigned device, unsigned port, const ibv_gid& gid,
                                     network type) noexcept {
  for (std::uint8_t index = 0; index < limits::gid_entries; ++index) {
    const auto entry = gid_at(device, port, index);
    if (entry && entry->type == type && same(entry->gid, gid)) return index;
  }
  return std::nullopt;
}

}  // namespace

bool is_multicast(const ibv_gid& gid) noexcept {
  return is_ipv4(gid) ? (gid.raw[12] & 0xf0) == 0xe0 : gid.raw[0] == 0xff;
}

ibv_gid gid_of_mac(const std::uint8_t (&mac)[6]) noexcept {
  ibv_gid gid{};
  std::memcpy(gid.raw + sizeof(gid.raw) - sizeof(mac), mac, sizeof(mac));
  return gid;
}

bool is_multicast_mac(const ibv_gid& gid) noexcept {
  constexpr std::size_t start = sizeof(gid.raw) - 6;
  return (gid.raw[start] & 1) != 0 &&
         std::all_of(gid.raw, gid.raw + start, [](std::uint8_t each) { return each == 0; });
}

bool is_multicast(std::uint16_t lid) noexcept {
  return lid >= first_multicast_lid && lid != permissive_lid;
}

int find_route(const soft_device& from, const ibv_ah_attr& address, route& way) noexcept {
  way = {};
  if (!from.has_port(address.port_num)) return EINVAL;
  const bool ethernet = from.is_ethernet(address.port_num);
  if (ethernet && address.is_global == 0) return EINVAL;
  std::optional<gid_entry> source;
  if (address.is_global != 0) {
    if (address.grh.sgid_index >= limits::gid_entries) return EINVAL;
    source = gid_at(from.number, address.port_num, address.grh.sgid_index);
    if (!source) return ENODATA;
    way.network = source->type;
  }
  if (ethernet) {
    way.multicast = is_multicast(address.grh.dgid);
    if (!way.multicast && is_ipv4(source->gid) != is_ipv4(address.grh.dgid)) return EINVAL;
    way.target = station_of_gid(address.grh.dgid, link_layer::ethernet).value_or(nobody);
    // On a network, neighbour discovery returns this error if no host answers.
    return way.multicast || way.target != nobody ? 0 : ETIMEDOUT;
  }
  // The subnet manager isn't asked for unicast LIDs, so a wrong LID isn't noticed here. Without a
  // GRH, the multicast group is unknown.
  way.multicast = is_multicast(address.dlid) && address.is_global != 0;
  way.target = station_of_lid(address.dlid).value_or(nobody);
  return 0;
}

destination describe(const soft_device& from, const ibv_ah_attr& address,
                     const route& way) noexcept {
  destination result;
  result.way = way;
  result.global = address.is_global != 0;
  const bool ethernet = from.is_ethernet(address.port_num);
  if (!ethernet) {
    result.service_level = address.sl & 0xf;
    result.lid = address.dlid;
  }
  if (result.global)
    if (const auto source = gid_at(from.number, address.port_num, address.grh.sgid_index)) {
      result.header = make_header(way.network, source->gid, address.grh);
      if (ethernet) result.service_level = header_type(way.network, result.header);
    }
  return result;
}

int address_back(const soft_device& device, std::uint8_t port, const ibv_wc& completion,
                 const ibv_grh& header, ibv_ah_attr& address) noexcept {
  address = {};
  if (!device.has_port(port)) return EINVAL;
  address.port_num = port;
  address.dlid = completion.slid;
  // RoCE packets carry no service level.
  if (!device.is_ethernet(port)) address.sl = completion.sl;
  address.src_path_bits = completion.dlid_path_bits;
  if ((completion.wc_flags & IBV_WC_GRH) == 0) return 0;
  const auto said = read_header(header);
  if (!said) return EPROTONOSUPPORT;
  // InfiniBand and RoCE v1 have the same header.
  const network type = device.is_ethernet(port) ? said->network : network::infiniband;
  // If the datagram was sent to a group, its target is not an address of this port, so the search
  // finds no GID to reply from.
  const auto index = index_of(device.number, port, said->target, type);
  if (!index) return EINVAL;
  address.is_global = 1;
  address.grh = said->back;
  address.grh.sgid_index = *index;
  return 0;
}

}  // namespace softverbs
