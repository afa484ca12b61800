// SPDX-License-Identifier: Apache-2.0
#include "machine/receive_hash.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace softverbs {
namespace {

constexpr std::uint64_t hash_of_ipv4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
constexpr std::uint64_t hash_of_ipv6 = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
constexpr std::uint64_t hash_of_tcp = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
constexpr std::uint64_t hash_of_udp = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

/// The size of two IPv6 addresses and two ports, in bytes.
constexpr std::size_t most_input = 36;
constexpr std::size_t window_bytes = 4;
static_assert(most_input + window_bytes <= receive_hash::key_bytes);

/// Returns the XOR of 32-bit parts of the key: for each bit that is set in the input, the part that
/// begins at the same position in the key.
std::uint32_t toeplitz(std::span<const std::uint8_t> key,
                       std::span<const std::uint8_t> input) noexcept {
  std::uint32_t window = 0;
  for (const std::uint8_t byte : key.first(window_bytes)) window = window << 8 | byte;
  std::uint32_t result = 0;
  for (std::size_t place = 0; place < input.size(); ++place)
    for (int bit = 7; bit >= 0; --bit) {
      if ((input[place] >> bit & 1) != 0) result ^= window;
      window = window << 1 | (key[place + window_bytes] >> bit & 1U);
    }
  return result;
}

}  // namespace

int receive_hash::check(const ibv_rx_hash_conf& asked, std::size_t queues) noexcept {
  const std::uint64_t fields = asked.rx_hash_fields_mask;
  const auto has = [&](std::uint64_t some) { return (fields & some) != 0; };
  if (asked.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ || has(~known_fields)) return EOPNOTSUPP;
  if (asked.rx_hash_key_len != key_bytes) return EINVAL;
  // Without fields to hash, all frames would go to the first queue.
  if (fields == 0 && queues != 1) return EINVAL;
  return (has(hash_of_ipv4) && has(hash_of_ipv6)) || (has(hash_of_tcp) && has(hash_of_udp)) ? EINVAL
                                                                                            : 0;
}

receive_hash::receive_hash(const ibv_rx_hash_conf& asked) noexcept
    : fields_(asked.rx_hash_fields_mask) {
  std::copy_n(asked.rx_hash_key, key_bytes, key_.begin());
}

std::uint32_t receive_hash::of(const frame_headers& frame) const noexcept {
  std::array<std::uint8_t, most_input> input;
  std::size_t size = 0;
  const auto take = [&](std::uint64_t field, std::uint8_t has, const auto& value) {
    if ((fields_ & field) == 0 || has == 0) return;
    std::memcpy(input.data() + size, &value, sizeof(value));
    size += sizeof(value);
  };
  take(IBV_RX_HASH_SRC_IPV4, frame.has_ipv4, frame.ipv4.src_ip);
  take(IBV_RX_HASH_DST_IPV4, frame.has_ipv4, frame.ipv4.dst_ip);
  take(IBV_RX_HASH_SRC_IPV6, frame.has_ipv6, frame.ipv6.src_ip);
  take(IBV_RX_HASH_DST_IPV6, frame.has_ipv6, frame.ipv6.dst_ip);
  take(IBV_RX_HASH_SRC_PORT_TCP, frame.has_tcp, frame.ports.src_port);
  take(IBV_RX_HASH_DST_PORT_TCP, frame.has_tcp, frame.ports.dst_port);
  take(IBV_RX_HASH_SRC_PORT_UDP, frame.has_udp, frame.ports.src_port);
  take(IBV_RX_HASH_DST_PORT_UDP, frame.has_udp, frame.ports.dst_port);
  return toeplitz(key_, {input.data(), size});
}

}  // namespace softverbs
