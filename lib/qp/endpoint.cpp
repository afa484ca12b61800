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

// Byte offsets of the encoded form; endpoint::encode documents it.
constexpr std::size_t magic_at = 0, version_at = 1, transport_at = 2, link_layer_at = 3,
                      gid_type_at = 4, mtu_at = 5, lid_at = 6, reads_as_initiator_at = 8,
                      number_at = 9, reads_as_target_at = 12, psn_at = 13, gid_at = 16,
                      qkey_at = 32, owner_at = 36, generation_at = 40;
constexpr std::byte magic{0x76};
constexpr std::byte version{2};

// Numbers that no connection can lead to: those of the management queue pairs, and of multicast.
constexpr std::uint32_t first_usable_number = 2;
constexpr std::uint32_t multicast_number = 0xffffff;

constexpr const char* decoding = "decode endpoint";

template <class Enum>
bool is_one_of(std::byte code, std::initializer_list<Enum> values) noexcept {
  return std::ranges::any_of(values,
                             [&](Enum each) { return static_cast<std::byte>(each) == code; });
}

error bad_field(const char* field, std::byte code) noexcept {
  return error::out_of_range(decoding, field, std::to_integer<std::int64_t>(code),
                             "the bytes are damaged or were not made by endpoint::encode");
}

/// What has to hold of every endpoint that something is to be connected to.
result<void> check_connectable(const endpoint& end, const char* operation) noexcept {
  const std::uint32_t number = end.number.value();
  if (number < first_usable_number || number == multicast_number)
    return error::out_of_range(operation, "queue pair number (2..0xfffffe)", number,
                               "0 and 1 belong to management, 0xffffff to multicast");
  if (end.link_layer == link_layer::ethernet) {
    if (end.address.is_zero())
      return error(error_kind::invalid_input, operation,
                   "the GID is missing: on Ethernet (RoCE) a queue pair is addressed by GID");
    if (end.gid_type == gid_type::infiniband)
      return error(error_kind::invalid_input, operation,
                   "the GID type is InfiniBand's, but the link layer is Ethernet");
  } else {
    if (end.gid_type != gid_type::infiniband)
      return error(error_kind::invalid_input, operation,
                   "the GID type is RoCE's, but the link layer is InfiniBand");
    if (end.lid.value() == 0)
      return error(error_kind::invalid_input, operation,
                   "the LID is missing: on InfiniBand the subnet manager has to assign one to the "
                   "port first");
  }
  return success();
}

/// Whether the encoded form has a queue key.
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
  std::ranges::transform(address.bytes, out.begin() + gid_at,
                         [](std::uint8_t byte) { return std::byte(byte); });
  if (has_qkey(type)) detail::store_big_endian(out.subspan<qkey_at, 4>(), qkey.value());
  detail::store_big_endian(out.subspan<owner_at, 4>(), owner);
  detail::store_big_endian(out.subspan<generation_at, 4>(), generation);
  return bytes;
}

result<endpoint> endpoint::decode(std::span<const std::byte> bytes) noexcept {
  // First what they are: another version has another length, and its own answer.
  if (bytes.size() > version_at) {
    if (bytes[magic_at] != magic)
      return error(error_kind::invalid_input, decoding,
                   "these bytes are no endpoint of verbspp; does the peer speak something else?");
    if (bytes[version_at] != version)
      return error::mismatch(decoding, "format version", std::to_integer<int>(version),
                             std::to_integer<int>(bytes[version_at]),
                             "both ends need the same version of verbspp's formats");
  }
  if (bytes.size() != encoded_size)
    return error::out_of_range(decoding, "length (44 bytes)",
                               static_cast<std::int64_t>(bytes.size()),
                               "the endpoint was truncated, or the peer speaks something else");
  const std::span<const std::byte, encoded_size> in(bytes.first<encoded_size>());
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
        end.generation, "the bytes are damaged or were not made by endpoint::encode");
  std::ranges::transform(in.subspan<gid_at, 16>(), end.address.bytes.begin(),
                         [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
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
  if (end.owner == 0) return out;
  std::array<char, 64> connection{};
  std::snprintf(connection.data(), connection.size(),
                ", connection %" PRIu32 " of owner 0x%08" PRIx32, end.generation, end.owner);
  return out << connection.data();
}

result<void> check_compatible(const endpoint& local, const endpoint& remote) noexcept {
  constexpr const char* operation = "compare endpoints";
  if (local.type != remote.type)
    return error::mismatch(operation, "transport", to_string(local.type), to_string(remote.type),
                           "build both queue pairs of the same transport");
  if (local.link_layer != remote.link_layer)
    return error::mismatch(operation, "link layer", to_string(local.link_layer),
                           to_string(remote.link_layer),
                           "InfiniBand and Ethernet ports cannot reach each other; choose another "
                           "device or port");
  VERBSPP_TRYV(check_connectable(remote, operation));
  if (local.gid_type != remote.gid_type)
    return error::mismatch(operation, "GID type", to_string(local.gid_type),
                           to_string(remote.gid_type),
                           "choose GID indexes of the same RoCE version on both ends");
  return success();
}

result<void> check_newer(const endpoint& remote, const endpoint& last) noexcept {
  if (remote.owner == 0 || remote.owner != last.owner || remote.generation > last.generation)
    return success();
  return error::outdated("compare endpoints", "generation of the remote end", remote.generation,
                         last.generation,
                         "this is an endpoint of an earlier connection; the peer has to send the "
                         "one that it has after its reset");
}

}  // namespace verbspp
