// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"
#include <verbspp/qp/endpoint.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <ostream>
#include <string>

namespace verbspp {

namespace {

// Byte offsets in the encoded form, which endpoint::encode documents.
constexpr std::size_t magic_at = 0, version_at = 1, transport_at = 2, link_layer_at = 3,
                      gid_type_at = 4, mtu_at = 5, lid_at = 6, reads_as_initiator_at = 8,
                      number_at = 9, reads_as_target_at = 12, psn_at = 13, gid_at = 16,
                      qkey_at = 32, owner_at = 36, generation_at = 40, offered_count_at = 44,
                      traffic_class_at = 45, service_level_at = 46, asked_for_at = 47,
                      offered_at = 48;
constexpr std::byte mtu_asked_for{1}, address_set_by_hand{2};
constexpr std::size_t offered_size = 20, offered_type_at = 16, offered_prefix_at = 17,
                      offered_vlan_at = 18;
static_assert(endpoint::encoded_size == offered_at + address_offer::capacity * offered_size);
constexpr std::byte magic{0x76};
constexpr std::byte version{3};
/// The previous format, which ends where the current one has the count of offered addresses.
constexpr std::byte former_version{2};
constexpr std::size_t former_size = endpoint::former_encoded_size;
static_assert(former_size == offered_count_at);

constexpr std::uint16_t last_vlan = 4094;
constexpr unsigned longest_prefix = 128;

// The limits of a connection's queue pair number: 0 and 1 are the management queue pairs, and
// 0xffffff is the multicast number.
constexpr std::uint32_t first_usable_number = 2;
constexpr std::uint32_t multicast_number = 0xffffff;

constexpr const char* decoding = "decode endpoint";

template <class Enum>
bool is_one_of(std::byte code, std::initializer_list<Enum> values) noexcept {
  return std::ranges::any_of(values,
                             [&](Enum each) { return static_cast<std::byte>(each) == code; });
}

error bad_field(const char* field, std::byte code) noexcept {
  return error::out_of_range(
      decoding, field, std::to_integer<std::int64_t>(code),
      "the bytes are damaged, or were not created by endpoint::encode from a valid endpoint");
}

result<void> check_number(const endpoint& end, const char* operation) noexcept {
  const std::uint32_t number = end.number.value();
  if (number >= first_usable_number && number != multicast_number) return success();
  return error::out_of_range(operation, "queue pair number (2..0xfffffe)", number,
                             "0 and 1 are reserved for management, 0xffffff for multicast, and the "
                             "endpoint of a moved-from queue pair has 0");
}

/// Checks that a queue pair can be connected to this endpoint.
result<void> check_connectable(const endpoint& end, const char* operation) noexcept {
  VERBSPP_TRYV(check_number(end, operation));
  if (end.link_layer == link_layer::ethernet) {
    if (end.address.is_zero())
      return error(
          error_kind::invalid_input, operation,
          "the GID is missing in the peer's endpoint: on Ethernet (RoCE), a queue pair is "
          "addressed by GID; pass the endpoint that the peer's queue pair or channel returns");
    if (end.gid_type == gid_type::infiniband)
      return error(error_kind::invalid_input, operation,
                   "the GID type is for InfiniBand, but the link layer is Ethernet");
  } else {
    if (end.gid_type != gid_type::infiniband)
      return error(error_kind::invalid_input, operation,
                   "the GID type is for RoCE, but the link layer is InfiniBand");
    if (end.lid.value() == 0)
      return error(error_kind::invalid_input, operation,
                   "the LID is missing: on InfiniBand the subnet manager has to assign one to the "
                   "endpoint's port first; EFA, whose ports have no LID, is not supported");
  }
  return success();
}

void store(const gid& address, std::span<std::byte, 16> out) noexcept {
  std::ranges::transform(address.bytes, out.begin(),
                         [](std::uint8_t byte) { return std::byte(byte); });
}

gid load_gid(std::span<const std::byte, 16> in) noexcept {
  gid address;
  std::ranges::transform(in, address.bytes.begin(),
                         [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return address;
}

using offered_bytes = std::span<std::byte, offered_size>;
using offered_input = std::span<const std::byte, offered_size>;

void store(const offered_address& offered, offered_bytes out) noexcept {
  store(offered.address, out.first<16>());
  out[offered_type_at] = static_cast<std::byte>(offered.type);
  out[offered_prefix_at] = std::byte(offered.prefix_length);
  detail::store_big_endian(out.subspan<offered_vlan_at, 2>(), offered.vlan);
}

result<offered_address> load_offered(offered_input in) noexcept {
  if (!is_one_of(in[offered_type_at], {gid_type::roce_v1, gid_type::roce_v2}))
    return bad_field("GID type of an offered address (1 or 2)", in[offered_type_at]);
  if (std::to_integer<unsigned>(in[offered_prefix_at]) > longest_prefix)
    return bad_field("prefix length of an offered address (0..128)", in[offered_prefix_at]);
  const auto vlan =
      static_cast<std::uint16_t>(detail::load_big_endian(in.subspan<offered_vlan_at, 2>()));
  if (vlan > last_vlan)
    return error::out_of_range(
        decoding, "VLAN of an offered address (0..4094)", vlan,
        "the bytes are damaged, or were not created by endpoint::encode from a valid endpoint");
  const gid address = load_gid(in.first<16>());
  if (address.is_zero() || address.is_multicast())
    return error(error_kind::invalid_input, decoding,
                 "an offered address is zero or multicast, which no port can have: the bytes are "
                 "damaged, or were not created by endpoint::encode from a valid endpoint");
  return offered_address{.address = address,
                         .type = static_cast<gid_type>(in[offered_type_at]),
                         .prefix_length = std::to_integer<std::uint8_t>(in[offered_prefix_at]),
                         .vlan = vlan};
}

/// Reads the offer, which comes after the fields of the previous format.
result<address_offer> load_offer(std::span<const std::byte> in, link_layer on) noexcept {
  const auto count = std::to_integer<std::size_t>(in[0]);
  if (count > address_offer::capacity)
    return bad_field("number of offered addresses (0..16)", in[0]);
  if (count != 0 && on != link_layer::ethernet)
    return bad_field("number of offered addresses (0 on InfiniBand)", in[0]);
  address_offer offer;
  for (std::size_t i = 0; i < count; ++i) {
    VERBSPP_TRY(
        offered,
        load_offered(
            in.subspan(offered_at - offered_count_at + i * offered_size).first<offered_size>()));
    offer.add(offered);
  }
  const std::size_t end = offered_at - offered_count_at + count * offered_size;
  for (std::size_t at = end; at < in.size(); ++at)
    if (in[at] != std::byte{0}) return bad_field("reserved byte (0)", in[at]);
  return offer;
}

/// Reads the other fields that come after those of the previous format.
result<void> load_quality(std::span<const std::byte, endpoint::encoded_size> in,
                          endpoint& into) noexcept {
  constexpr std::byte highest_level{verbspp::service_level::maximum};
  if (in[service_level_at] > highest_level)
    return bad_field("service level (0..15)", in[service_level_at]);
  if (in[asked_for_at] > (mtu_asked_for | address_set_by_hand))
    return bad_field("flags of requested values (0..3)", in[asked_for_at]);
  into.traffic_class =
      verbspp::traffic_class::assume(std::to_integer<std::uint8_t>(in[traffic_class_at]));
  into.service_level =
      verbspp::service_level::assume(std::to_integer<std::uint8_t>(in[service_level_at]));
  into.is_mtu_asked_for = (in[asked_for_at] & mtu_asked_for) != std::byte{0};
  into.is_address_set_by_hand = (in[asked_for_at] & address_set_by_hand) != std::byte{0};
  return success();
}

/// Checks that both ends have the same value, or that at least one of them has none (0).
template <class Value>
result<void> check_same(const char* field, Value local, Value remote, const char* hint) noexcept {
  if (local == remote || local.value() == 0 || remote.value() == 0) return success();
  return error::mismatch("compare endpoints", field, local.value(), remote.value(), hint);
}

result<void> check_mtu(const endpoint& local, const endpoint& remote) noexcept {
  if ((!local.is_mtu_asked_for || local.mtu <= remote.mtu) &&
      (!remote.is_mtu_asked_for || remote.mtu <= local.mtu))
    return success();
  return error::mismatch("compare endpoints", "path MTU in bytes", local.mtu.bytes(),
                         remote.mtu.bytes(),
                         "request the same path MTU at both ends, no larger than the active MTU of "
                         "either port, or leave path_mtu out at both");
}

bool is_offered(const endpoint& end) noexcept {
  return std::ranges::any_of(end.addresses, [&](const offered_address& each) {
    return each.address == end.address && each.type == end.gid_type;
  });
}

/// True if the address was set by hand. Also true if the address is not one of the offered
/// addresses, for instance in an endpoint of the previous format.
bool is_set_by_hand(const endpoint& end) noexcept {
  return end.is_address_set_by_hand || !is_offered(end);
}

/// The addresses to choose from. These are all addresses that the endpoint offers, or only the
/// endpoint's own address if that is not among the offered ones.
address_offer effective_offer(const endpoint& end) noexcept {
  if (is_offered(end)) return end.addresses;
  address_offer single;
  single.add({.address = end.address, .type = end.gid_type});
  return single;
}

/// True if an encoded endpoint of this transport contains a queue key.
bool has_qkey(transport type) noexcept {
  switch (type) {
    case transport::rc:
    case transport::uc:
      return false;
    case transport::ud:
      return true;
  }
  return false;
}

}  // namespace

std::array<std::byte, endpoint::encoded_size> endpoint::encode() const noexcept {
  std::array<std::byte, encoded_size> bytes{};
  const std::span<std::byte, encoded_size> out(bytes);
  out[magic_at] = magic;
  out[version_at] = version;
  out[transport_at] = static_cast<std::byte>(type);
  out[link_layer_at] = static_cast<std::byte>(link_layer);
  out[gid_type_at] = static_cast<std::byte>(gid_type);
  out[mtu_at] = std::byte(mtu.native());
  detail::store_big_endian(out.subspan<lid_at, 2>(), lid.value());
  out[reads_as_initiator_at] = std::byte(reads_as_initiator.value());
  detail::store_big_endian(out.subspan<number_at, 3>(), number.value());
  out[reads_as_target_at] = std::byte(reads_as_target.value());
  detail::store_big_endian(out.subspan<psn_at, 3>(), send_psn.value());
  store(address, out.subspan<gid_at, 16>());
  if (has_qkey(type)) detail::store_big_endian(out.subspan<qkey_at, 4>(), qkey.value());
  detail::store_big_endian(out.subspan<owner_at, 4>(), owner);
  detail::store_big_endian(out.subspan<generation_at, 4>(), generation);
  out[offered_count_at] = std::byte(static_cast<std::uint8_t>(addresses.size()));
  out[traffic_class_at] = std::byte(traffic_class.value());
  out[service_level_at] = std::byte(service_level.value());
  if (is_mtu_asked_for) out[asked_for_at] |= mtu_asked_for;
  if (is_address_set_by_hand) out[asked_for_at] |= address_set_by_hand;
  for (std::size_t i = 0; i < addresses.size(); ++i)
    store(addresses[i],
          offered_bytes(out.subspan(offered_at + i * offered_size).first<offered_size>()));
  return bytes;
}

std::size_t endpoint::encoded_size_of(
    std::span<const std::byte, former_encoded_size> beginning) noexcept {
  const bool is_present = beginning[magic_at] == magic && beginning[version_at] == version;
  return is_present ? encoded_size : former_encoded_size;
}

result<endpoint> endpoint::decode(std::span<const std::byte> bytes) noexcept {
  // Checks the format and the version first, because an endpoint in a different version has a
  // different length, and gets its own error.
  bool is_former = false;
  if (bytes.size() > version_at) {
    if (bytes[magic_at] != magic)
      return error(error_kind::invalid_input, decoding,
                   "these bytes are not a verbspp endpoint; does the peer use another protocol?");
    is_former = bytes[version_at] == former_version;
    if (bytes[version_at] != version && !is_former)
      return error::mismatch(decoding, "format version", std::to_integer<int>(version),
                             std::to_integer<int>(bytes[version_at]),
                             "use the same version of verbspp at both ends");
  }
  if (bytes.size() != (is_former ? former_size : encoded_size))
    return error::out_of_range(
        decoding, is_former ? "length (44 bytes)" : "length (368 bytes)",
        static_cast<std::int64_t>(bytes.size()),
        "these are not exactly the bytes that the peer created with endpoint::encode");
  const std::span<const std::byte, former_size> in(bytes.first<former_size>());
  if (!is_one_of(in[transport_at], {transport::rc, transport::uc, transport::ud}))
    return bad_field("transport (2..4)", in[transport_at]);
  if (!is_one_of(in[link_layer_at], {link_layer::infiniband, link_layer::ethernet}))
    return bad_field("link layer (1 or 2)", in[link_layer_at]);
  if (!is_one_of(in[gid_type_at], {gid_type::infiniband, gid_type::roce_v1, gid_type::roce_v2}))
    return bad_field("GID type (0..2)", in[gid_type_at]);
  const auto mtu = path_mtu::from_code(std::to_integer<unsigned>(in[mtu_at]));
  if (!mtu.has_value()) return bad_field("MTU code (1..5)", in[mtu_at]);
  const auto type = static_cast<transport>(in[transport_at]);
  for (const std::byte reserved : in.subspan<qkey_at, 4>())
    if (!has_qkey(type) && reserved != std::byte{0})
      return bad_field("reserved byte (0)", reserved);

  const auto number = [&]<std::size_t At, std::size_t Size>() {
    return static_cast<std::uint32_t>(detail::load_big_endian(in.subspan<At, Size>()));
  };
  endpoint end{
      .type = type,
      .number = queue_pair_number::assume(number.operator()<number_at, 3>()),
      .link_layer = static_cast<verbspp::link_layer>(in[link_layer_at]),
      .lid = verbspp::lid::assume(static_cast<std::uint16_t>(number.operator()<lid_at, 2>())),
      .address = {},
      .gid_type = static_cast<verbspp::gid_type>(in[gid_type_at]),
      .mtu = mtu.assume_value(),
      .send_psn = packet_sequence_number::assume(number.operator()<psn_at, 3>()),
      .reads_as_initiator =
          read_depth::assume(std::to_integer<std::uint8_t>(in[reads_as_initiator_at])),
      .reads_as_target = read_depth::assume(std::to_integer<std::uint8_t>(in[reads_as_target_at])),
      .qkey = queue_key::assume(number.operator()<qkey_at, 4>()),
      .owner = number.operator()<owner_at, 4>(),
      .generation = number.operator()<generation_at, 4>(),
  };
  if ((end.owner == 0) != (end.generation == 0))
    return error::out_of_range(
        decoding, end.owner == 0 ? "generation (0 without an owner)" : "generation (1 or more)",
        end.generation,
        "the bytes are damaged, or were not created by endpoint::encode from a valid endpoint");
  end.address = load_gid(in.subspan<gid_at, 16>());
  if (!is_former) {
    VERBSPP_TRY(offer, load_offer(bytes.subspan(offered_count_at), end.link_layer));
    end.addresses = offer;
    VERBSPP_TRYV(load_quality(bytes.first<encoded_size>(), end));
  }
  VERBSPP_TRYV(check_connectable(end, decoding));
  return end;
}

std::ostream& operator<<(std::ostream& out, const endpoint& end) {
  std::array<char, 64> numbers{};
  std::snprintf(numbers.data(), numbers.size(),
                " queue pair 0x%06" PRIx32 ", PSN 0x%06" PRIx32 ", ", end.number.value(),
                end.send_psn.value());
  out << to_string(end.type) << numbers.data() << to_string(end.link_layer) << ", LID "
      << std::to_string(end.lid.value()) << ", GID " << end.address << " ("
      << to_string(end.gid_type) << "), MTU " << std::to_string(end.mtu.bytes()) << ", reads "
      << std::to_string(end.reads_as_initiator.value()) << '/'
      << std::to_string(end.reads_as_target.value());
  if (end.traffic_class.value() != 0)
    out << ", traffic class " << std::to_string(end.traffic_class.value());
  if (end.service_level.value() != 0)
    out << ", service level " << std::to_string(end.service_level.value());
  if (end.addresses.size() > 1)
    out << ", offers " << std::to_string(end.addresses.size()) << " addresses";
  if (end.owner == 0) return out;
  std::array<char, 64> connection{};
  std::snprintf(connection.data(), connection.size(),
                ", connection %" PRIu32 " of owner 0x%08" PRIx32, end.generation, end.owner);
  return out << connection.data();
}

result<void> check_compatible(const endpoint& local, const endpoint& remote) noexcept {
  constexpr const char* operation = "compare endpoints";
  // The numbers are checked first, because an empty endpoint, such as that of a moved-from queue
  // pair, may also differ in other fields.
  VERBSPP_TRYV(check_number(local, operation));
  VERBSPP_TRYV(check_number(remote, operation));
  if (local.type != remote.type)
    return error::mismatch(operation, "transport", to_string(local.type), to_string(remote.type),
                           "build both queue pairs with the same transport");
  if (local.link_layer != remote.link_layer)
    return error::mismatch(operation, "link layer", to_string(local.link_layer),
                           to_string(remote.link_layer),
                           "InfiniBand and Ethernet ports cannot reach each other; choose another "
                           "device or port");
  VERBSPP_TRYV(check_connectable(remote, operation));
  VERBSPP_TRYV(check_same("traffic class", local.traffic_class, remote.traffic_class,
                          "specify the same one at both ends, or specify it at only one end"));
  VERBSPP_TRYV(check_same("service level", local.service_level, remote.service_level,
                          "specify the same one at both ends, or specify it at only one end"));
  VERBSPP_TRYV(check_mtu(local, remote));
  if (local.link_layer == link_layer::ethernet) VERBSPP_TRYV(choose_addresses(local, remote));
  return success();
}

result<address_pair> choose_addresses(const endpoint& local, const endpoint& remote) noexcept {
  const address_offer here = effective_offer(local);
  const address_offer there = effective_offer(remote);
  if (here.size() != 1 || there.size() != 1 || (!is_set_by_hand(local) && !is_set_by_hand(remote)))
    return choose_addresses(here, there);
  // An address was set by hand, so only the RoCE version and the address family have to match.
  if (here[0].type != there[0].type)
    return error::mismatch("compare endpoints", "GID type", to_string(here[0].type),
                           to_string(there[0].type),
                           "choose GID indexes of the same RoCE version on both ends");
  const auto chosen = choose_addresses(here, there);
  if (chosen.has_value() || here[0].address.is_ipv4_mapped() != there[0].address.is_ipv4_mapped())
    return chosen;
  return address_pair{.local = here[0], .remote = there[0], .reach = address_reach::routed};
}

result<void> check_newer(const endpoint& remote, const endpoint& last) noexcept {
  if (remote.owner == 0 || remote.owner != last.owner || remote.generation > last.generation)
    return success();
  return error::outdated("compare endpoints", "generation of the remote end", remote.generation,
                         last.generation,
                         "this is an endpoint of an earlier connection: pass the new endpoint, "
                         "which renew() returns at the peer");
}

}  // namespace verbspp
