// SPDX-License-Identifier: Apache-2.0
#include <verbspp/work/datagram.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace verbspp {

namespace {

// Offsets in the 40 bytes before the payload. A GRH is laid out like an IPv6 header.
constexpr std::size_t grh_source = 8, grh_destination = 24;
constexpr std::size_t ipv4 = 20, ipv4_size = 20, ipv4_source = ipv4 + 12,
                      ipv4_destination = ipv4 + 16;

std::uint8_t at(std::span<const std::byte> header, std::size_t offset) noexcept {
  return std::to_integer<std::uint8_t>(header[offset]);
}

/// The ones' complement sum over a correct IPv4 header is all ones (RFC 1071).
bool checksum_is_right(std::span<const std::byte> header) noexcept {
  std::uint32_t sum = 0;
  for (std::size_t i = ipv4; i < ipv4 + ipv4_size; i += 2)
    sum += static_cast<std::uint32_t>(at(header, i) << 8 | at(header, i + 1));
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return sum == 0xffff;
}

/// True if the 40 bytes contain an IPv4 header instead of a GRH. No field says which of the two it
/// is. The bytes before an IPv4 header are arbitrary, and may look like the beginning of an IPv6
/// header; in that case, the checksum decides.
bool has_ipv4_header(std::span<const std::byte> header) noexcept {
  if (at(header, ipv4) != 0x45) return false;  // version 4, five words, as in RoCE v2
  return at(header, 0) >> 4 != 6 || checksum_is_right(header);
}

gid gid_in_header(std::span<const std::byte> header, std::size_t offset) noexcept {
  gid address;
  for (std::size_t i = 0; i < address.bytes.size(); ++i) address.bytes[i] = at(header, offset + i);
  return address;
}

gid ipv4_mapped_at(std::span<const std::byte> header, std::size_t offset) noexcept {
  gid address;
  address.bytes[10] = address.bytes[11] = 0xff;
  for (std::size_t i = 0; i < 4; ++i) address.bytes[12 + i] = at(header, offset + i);
  return address;
}

}  // namespace

received_datagram::received_datagram(const ibv_wc& native, std::span<std::byte> memory) noexcept
    : native_(native),
      memory_(memory.first(std::min<std::size_t>(memory.size(), native.byte_len))) {}

std::span<std::byte> received_datagram::payload() const noexcept {
  return memory_.subspan(header().size());
}

std::span<std::byte> received_datagram::header() const noexcept {
  return memory_.first(std::min(memory_.size(), datagram_header_size));
}

work_result<received_datagram> received_datagram::from(const work_completion& completion,
                                                       std::span<std::byte> memory) noexcept {
  VERBSPP_TRYV(completion.get());
  return received_datagram(completion.native(), memory);
}

std::optional<gid> received_datagram::source_address() const noexcept {
  if (!has_global_route()) return std::nullopt;
  return has_ipv4_header(header()) ? ipv4_mapped_at(header(), ipv4_source)
                                   : gid_in_header(header(), grh_source);
}

std::optional<gid> received_datagram::destination_address() const noexcept {
  if (!has_global_route()) return std::nullopt;
  return has_ipv4_header(header()) ? ipv4_mapped_at(header(), ipv4_destination)
                                   : gid_in_header(header(), grh_destination);
}

}  // namespace verbspp
