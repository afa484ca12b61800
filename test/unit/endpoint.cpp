// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "bytes.hpp"
#include "text.hpp"
#include <verbspp/qp/endpoint.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

using verbspp::endpoint;
using verbspp::error_kind;
using verbspp::gid;
using verbspp::gid_type;
using verbspp::link_layer;
using verbspp::transport;
using verbspp::test::contains;
using verbspp::test::printed;
using verbspp::test::printed_by_a_hex_stream;
using verbspp::test::with;

namespace {

using encoded = std::array<std::byte, endpoint::encoded_size>;

/// The length of version 2 of the format, and the offset of the addresses that version 3 appends to
/// it.
constexpr std::size_t former_size = endpoint::former_encoded_size, offered_at = 48;

constexpr gid link_local_gid{
    {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0xc9, 0x03, 0x00, 0x00, 0x14, 0x91}};
constexpr gid mapped_gid{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}};

constexpr endpoint infiniband_end{.type = transport::rc,
                                  .number = 0x12ab34,
                                  .link_layer = link_layer::infiniband,
                                  .lid = 0x0107,
                                  .address = link_local_gid,
                                  .gid_type = gid_type::infiniband,
                                  .mtu = 4096,
                                  .send_psn = 0xfedcba,
                                  .reads_as_initiator = 16,
                                  .reads_as_target = 200};

constexpr endpoint ethernet_end{.type = transport::uc,
                                .number = 2,
                                .link_layer = link_layer::ethernet,
                                .lid = 0,
                                .address = mapped_gid,
                                .gid_type = gid_type::roce_v2,
                                .mtu = 1024,
                                .send_psn = 0,
                                .reads_as_initiator = 0,
                                .reads_as_target = 255,
                                .owner = 0x8102fe0c,
                                .generation = 0x01234567};

/// An endpoint that offers addresses on two networks, one of which is a VLAN.
constexpr endpoint offering_end = [] {
  endpoint end = ethernet_end;
  end.is_mtu_asked_for = true;
  end.traffic_class = 0x68;
  end.service_level = 5;
  end.addresses.add(
      {.address = mapped_gid, .type = gid_type::roce_v2, .prefix_length = 120, .vlan = 0x0fed});
  end.addresses.add({.address = link_local_gid, .type = gid_type::roce_v1});
  return end;
}();

constexpr endpoint datagram_end{.type = transport::ud,
                                .number = 0xfffffe,
                                .link_layer = link_layer::ethernet,
                                .lid = 0,
                                .address = mapped_gid,
                                .gid_type = gid_type::roce_v1,
                                .mtu = 256,
                                .send_psn = 1,
                                .reads_as_initiator = 0,
                                .reads_as_target = 0,
                                .qkey = 0x81234567};

/// Returns an encoding that consists of the given bytes, followed by zeros.
template <class... Bytes>
constexpr encoded encoding(Bytes... bytes) {
  return {static_cast<std::byte>(bytes)...};
}

// These bytes were written by hand, following the format table in the documentation of
// endpoint::encode.
constexpr encoded infiniband_bytes = encoding(  //
    0x76, 3,                                    // magic, version
    2, 1, 0, 5,                                 // RC, InfiniBand, InfiniBand GID, 4096
    0x01, 0x07,                                 // LID
    16, 0x12, 0xab, 0x34,                       // read depth as initiator, queue pair number
    200, 0xfe, 0xdc, 0xba,                      // read depth as target, send PSN
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0xc9, 0x03, 0x00, 0x00, 0x14, 0x91,  // GID
    0, 0, 0, 0,                                                                    // reserved
    0, 0, 0, 0, 0, 0, 0, 0);  // no owner, no generation

constexpr encoded ethernet_bytes = encoding(  //
    0x76, 3,                                  // magic, version
    3, 2, 2, 3,                               // UC, Ethernet, RoCE v2, 1024
    0, 0,                                     // LID
    0, 0, 0, 2,                               // read depth as initiator, queue pair number
    255, 0, 0, 0,                             // read depth as target, send PSN
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1,  // GID
    0, 0, 0, 0,                                              // reserved
    0x81, 0x02, 0xfe, 0x0c, 0x01, 0x23, 0x45, 0x67);         // owner, generation

constexpr encoded datagram_bytes = encoding(  //
    0x76, 3,                                  // magic, version
    4, 2, 1, 1,                               // UD, Ethernet, RoCE v1, 256
    0, 0,                                     // LID
    0, 0xff, 0xff, 0xfe,                      // read depth as initiator, queue pair number
    0, 0, 0, 1,                               // read depth as target, send PSN
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1,  // GID
    0x81, 0x23, 0x45, 0x67,                                  // queue key
    0, 0, 0, 0, 0, 0, 0, 0);                                 // no owner, no generation

constexpr encoded offering_bytes = [] {
  encoded bytes = ethernet_bytes;
  constexpr encoded behind =
      encoding(2, 0x68, 5, 1,  // count, traffic class, service level, MTU was requested
               0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1,  // GID
               2, 120, 0x0f, 0xed,                                      // RoCE v2, prefix, VLAN
               0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x02, 0xc9, 0x03, 0x00, 0x00, 0x14, 0x91, 1, 0,
               0, 0);  // RoCE v1, unknown prefix, no VLAN
  for (std::size_t i = 0; former_size + i < bytes.size(); ++i) bytes[former_size + i] = behind[i];
  return bytes;
}();

/// Returns true if decoding the bytes yields either an error with a message, or an endpoint that
/// encodes to exactly these bytes. Bytes in the previous format must be the beginning of the
/// encoding, except for the version number.
bool is_refused_or_round_trips(std::span<const std::byte> bytes) {
  const auto decoded = endpoint::decode(bytes);
  if (decoded.has_error())
    return (decoded.error() == error_kind::invalid_input ||
            decoded.error() == error_kind::mismatch) &&
           contains(decoded.error().message(), "decode endpoint: ") &&
           decoded.error().hint() != nullptr;
  auto again = decoded.value().encode();
  if (bytes.size() == former_size) {
    again[1] = std::byte{2};
    return std::equal(bytes.begin(), bytes.end(), again.begin());
  }
  return std::equal(again.begin(), again.end(), bytes.begin(), bytes.end());
}

std::string why_refused(std::span<const std::byte> bytes) {
  const auto decoded = endpoint::decode(bytes);
  return decoded.has_error() ? decoded.error().message() : "not refused";
}

class random_endpoints {
 public:
  endpoint next() {
    const bool on_ethernet = below(2) == 1;
    endpoint end;
    end.type = std::array{transport::rc, transport::uc, transport::ud}[below(3)];
    if (end.type == transport::ud) end.qkey = verbspp::queue_key::assume(below(0xffffffff));
    end.number = verbspp::queue_pair_number::assume(2 + below(0xfffffe - 2 + 1));
    end.link_layer = on_ethernet ? link_layer::ethernet : link_layer::infiniband;
    end.lid = verbspp::lid::assume(
        static_cast<std::uint16_t>(on_ethernet ? below(0x10000) : 1 + below(0xffff)));
    for (auto& byte : end.address.bytes) byte = byte_();
    end.address.bytes[15] |= on_ethernet ? 1 : 0;
    end.gid_type = !on_ethernet    ? gid_type::infiniband
                   : below(2) == 1 ? gid_type::roce_v1
                                   : gid_type::roce_v2;
    end.mtu = verbspp::path_mtu::from_code(1 + below(5)).value();
    end.send_psn = verbspp::packet_sequence_number::assume(below(0x1000000));
    end.reads_as_initiator = verbspp::read_depth::assume(byte_());
    end.reads_as_target = verbspp::read_depth::assume(byte_());
    end.is_mtu_asked_for = below(2) == 1;
    end.is_address_set_by_hand = below(2) == 1;
    end.traffic_class = verbspp::traffic_class::assume(byte_());
    end.service_level = verbspp::service_level::assume(static_cast<std::uint8_t>(below(16)));
    for (auto left = on_ethernet ? below(17) : 0; left > 0; --left) {
      verbspp::offered_address offered;
      for (auto& byte : offered.address.bytes) byte = byte_();
      offered.address.bytes[0] &= 0x7f;
      offered.address.bytes[1] |= 1;
      offered.type = below(2) == 1 ? gid_type::roce_v1 : gid_type::roce_v2;
      offered.prefix_length = static_cast<std::uint8_t>(below(129));
      offered.vlan = static_cast<std::uint16_t>(below(4095));
      end.addresses.add(offered);
    }
    if (below(2) == 1) {
      end.owner = 1 + below(0xffffffff);
      end.generation = 1 + below(0xffffffff);
    }
    return end;
  }
  std::uint32_t below(std::uint32_t limit) {
    return std::uniform_int_distribution<std::uint32_t>(0, limit - 1)(generator_);
  }
  std::byte byte() { return static_cast<std::byte>(byte_()); }

 private:
  std::uint8_t byte_() { return static_cast<std::uint8_t>(below(256)); }
  std::mt19937 generator_{20250101};
};

}  // namespace

TEST_CASE("an endpoint is encoded byte for byte as documented") {
  CHECK(infiniband_end.encode() == infiniband_bytes);
  CHECK(ethernet_end.encode() == ethernet_bytes);
  CHECK(offering_end.encode() == offering_bytes);
}

TEST_CASE("the documented bytes decode to the endpoint") {
  CHECK(endpoint::decode(infiniband_bytes).value() == infiniband_end);
  CHECK(endpoint::decode(ethernet_bytes).value() == ethernet_end);
  CHECK(endpoint::decode(offering_bytes).value() == offering_end);
  CHECK(datagram_end.encode() == datagram_bytes);
  CHECK(endpoint::decode(datagram_bytes).value() == datagram_end);
}

TEST_CASE("valid endpoints are unchanged after encoding and decoding") {
  random_endpoints random;
  for (int i = 0; i < 5000; ++i) {
    const endpoint end = random.next();
    const auto decoded = endpoint::decode(end.encode());
    INFO(printed(end));
    REQUIRE(decoded.has_value());
    REQUIRE(decoded.value() == end);
  }
}

TEST_CASE("a changed encoding is refused, or decodes to an endpoint with the same encoding") {
  random_endpoints random;
  for (int i = 0; i < 6; ++i) {
    const encoded valid = i == 0   ? infiniband_bytes
                          : i == 1 ? offering_bytes
                                   : random.next().encode();
    for (std::size_t offset = 0; offset < valid.size(); ++offset)
      for (unsigned value = 0; value < 256; ++value) {
        const encoded changed = with(valid, offset, value);
        if (is_refused_or_round_trips(changed)) continue;
        CAPTURE(offset, value);
        FAIL_CHECK(why_refused(changed));
      }
  }
}

TEST_CASE("random bytes are refused unless they are the encoding of an endpoint") {
  random_endpoints random;
  for (std::size_t length = 0; length <= 100; ++length)
    for (int i = 0; i < 200; ++i) {
      std::vector<std::byte> bytes(length);
      for (auto& byte : bytes) byte = random.byte();
      // Half of the inputs begin with valid bytes, which purely random bytes almost never do.
      if (i % 2 == 1)
        std::copy_n(ethernet_bytes.begin(), std::min<std::size_t>(length, 6), bytes.begin());
      if (is_refused_or_round_trips(bytes)) continue;
      CAPTURE(length);
      FAIL_CHECK(why_refused(bytes));
    }
}

TEST_CASE("a truncated or overlong encoding is refused with its length") {
  std::vector<std::byte> bytes(infiniband_bytes.begin(), infiniband_bytes.end());
  bytes.resize(400);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    if (length == endpoint::encoded_size) continue;
    CHECK(why_refused(std::span(bytes).first(length)) ==
          "decode endpoint: length (368 bytes): " + std::to_string(length) +
              " is out of range; these are not exactly the bytes that the peer created with "
              "endpoint::encode");
  }
}

TEST_CASE("bytes of another protocol are reported as such") {
  CHECK(contains(why_refused(with(infiniband_bytes, 0, 0x6d)), "not a verbspp endpoint"));
}

TEST_CASE("the error about another format version names both versions") {
  for (const unsigned version : {0U, 1U, 4U, 255U}) {
    const auto decoded = endpoint::decode(with(infiniband_bytes, 1, version));
    REQUIRE(decoded.has_error());
    CHECK(decoded.error() == error_kind::mismatch);
    CHECK(contains(decoded.error().message(),
                   "format version differs: local 3, remote " + std::to_string(version)));
  }
}

TEST_CASE(
    "an endpoint of the first format version is refused for its version instead of its length") {
  const encoded first = with(infiniband_bytes, 1, 1);
  CHECK(why_refused(std::span(first).first(36)) ==
        "decode endpoint: format version differs: local 3, remote 1; use the same version of "
        "verbspp at both ends");
}

TEST_CASE("an endpoint of the previous format is decoded and offers no addresses") {
  encoded former = ethernet_bytes;
  former[1] = std::byte{2};
  const auto decoded = endpoint::decode(std::span(former).first(former_size));
  REQUIRE(decoded.has_value());
  CHECK(decoded.value() == ethernet_end);
  CHECK(decoded.value().addresses.empty());
  const auto beginning = std::span<const std::byte>(former).first<former_size>();
  CHECK(endpoint::encoded_size_of(beginning) == former_size);
  CHECK(endpoint::encoded_size_of(std::span(ethernet_bytes).first<former_size>()) ==
        endpoint::encoded_size);
  CHECK(why_refused(former) ==
        "decode endpoint: length (44 bytes): 368 is out of range; these are not exactly the bytes "
        "that the peer created with endpoint::encode");
  CHECK(contains(why_refused(std::span(ethernet_bytes).first(former_size)), "length (368 bytes)"));
}

TEST_CASE("invalid values of the fields that version 3 adds are refused") {
  CHECK(contains(why_refused(with(offering_bytes, former_size, 17)), "offered addresses (0..16)"));
  CHECK(contains(why_refused(with(offering_bytes, offered_at + 16, 0)), "GID type of an offered"));
  CHECK(contains(why_refused(with(offering_bytes, offered_at + 17, 129)), "prefix length"));
  CHECK(contains(why_refused(with(offering_bytes, offered_at + 18, 0x1f)), "VLAN"));
  CHECK(contains(why_refused(with(offering_bytes, offered_at + 20, 0xff)),
                 "is zero or multicast, which no port can have"));
  CHECK(contains(why_refused(with(offering_bytes, former_size + 2, 16)), "service level"));
  CHECK(
      contains(why_refused(with(offering_bytes, former_size + 3, 4)), "flags of requested values"));
  CHECK(contains(why_refused(with(offering_bytes, offered_at + 40, 1)), "reserved byte"));
  CHECK(contains(why_refused(with(infiniband_bytes, former_size, 1)), "on InfiniBand"));
}

TEST_CASE("two ends choose among their offers unless an address was set by hand") {
  endpoint local = offering_end;
  endpoint remote = offering_end;
  const auto by_offer = verbspp::choose_addresses(local, remote);
  REQUIRE(by_offer.has_value());
  CHECK(by_offer.value().remote.address == mapped_gid);
  remote.address.bytes[15] = 7;  // this address is not in the endpoint's offer
  const auto by_hand = verbspp::choose_addresses(local, remote);
  REQUIRE(by_hand.has_value());
  CHECK(by_hand.value().remote.address == remote.address);
  CHECK(by_hand.value().local.address == mapped_gid);
  remote.addresses = {};
  local.addresses = {};
  local.gid_type = gid_type::roce_v1;
  const auto unlike = verbspp::choose_addresses(local, remote);
  REQUIRE(unlike.has_error());
  CHECK(contains(unlike.error().message(), "GID type differs: local RoCE v1, remote RoCE v2"));
}

TEST_CASE("an owner without a generation and a generation without an owner are refused") {
  endpoint end = ethernet_end;
  end.generation = 0;
  CHECK(contains(why_refused(end.encode()), "generation (1 or more): 0 is out of range"));
  end = infiniband_end;
  end.generation = 3;
  CHECK(contains(why_refused(end.encode()), "generation (0 without an owner): 3 is out of range"));
}

TEST_CASE("the error about a field out of range names the field") {
  struct bad_byte {
    std::size_t offset;
    std::initializer_list<unsigned> values;
    const char* name;
  };
  const std::array<bad_byte, 8> bad_bytes{{
      {2, {0, 1, 5, 8, 255}, "transport (2..4)"},
      {3, {0, 3, 255}, "link layer (1 or 2)"},
      {4, {3, 255}, "GID type (0..2)"},
      {5, {0, 6, 255}, "MTU code (1..5)"},
      {32, {1, 128, 255}, "reserved byte (0)"},
      {33, {1, 128, 255}, "reserved byte (0)"},
      {34, {1, 128, 255}, "reserved byte (0)"},
      {35, {1, 128, 255}, "reserved byte (0)"},
  }};
  for (const auto& [offset, values, name] : bad_bytes)
    for (const unsigned value : values) {
      const auto decoded = endpoint::decode(with(infiniband_bytes, offset, value));
      REQUIRE(decoded.has_error());
      CHECK(decoded.error() == error_kind::invalid_input);
      CHECK(decoded.error().subject() == std::string(name));
      CHECK(contains(decoded.error().message(),
                     std::string(name) + ": " + std::to_string(value) + " is out of range"));
    }
}

TEST_CASE("queue pair numbers reserved for management and multicast are refused") {
  for (const std::uint32_t number : {0U, 1U, 0xffffffU}) {
    endpoint end = infiniband_end;
    end.number = verbspp::queue_pair_number::assume(number);
    CHECK(contains(why_refused(end.encode()), "queue pair number (2..0xfffffe): " +
                                                  std::to_string(number) + " is out of range"));
  }
  for (const std::uint32_t number : {2U, 0xfffffeU}) {
    endpoint end = infiniband_end;
    end.number = verbspp::queue_pair_number::assume(number);
    CHECK(endpoint::decode(end.encode()).has_value());
  }
}

TEST_CASE("an Ethernet endpoint without a GID is refused") {
  endpoint end = ethernet_end;
  end.address = {};
  CHECK(contains(why_refused(end.encode()), "the GID is missing"));
}

TEST_CASE("an InfiniBand endpoint without a LID is refused") {
  endpoint end = infiniband_end;
  end.lid = 0;
  CHECK(contains(why_refused(end.encode()), "the LID is missing"));
}

TEST_CASE("an InfiniBand endpoint needs no GID") {
  endpoint end = infiniband_end;
  end.address = {};
  CHECK(endpoint::decode(end.encode()).value() == end);
}

TEST_CASE("an endpoint whose GID type does not fit its link layer is refused") {
  endpoint end = ethernet_end;
  end.gid_type = gid_type::infiniband;
  CHECK(contains(why_refused(end.encode()), "the link layer is Ethernet"));
  for (const auto type : {gid_type::roce_v1, gid_type::roce_v2}) {
    end = infiniband_end;
    end.gid_type = type;
    CHECK(contains(why_refused(end.encode()), "the link layer is InfiniBand"));
  }
}

TEST_CASE("endpoints with different fields are not equal") {
  CHECK(infiniband_end == infiniband_end);
  const auto differs = [](auto change) {
    endpoint end = infiniband_end;
    change(end);
    return end != infiniband_end;
  };
  CHECK(differs([](endpoint& e) { e.type = transport::uc; }));
  CHECK(differs([](endpoint& e) { e.number = 2; }));
  CHECK(differs([](endpoint& e) { e.link_layer = link_layer::ethernet; }));
  CHECK(differs([](endpoint& e) { e.lid = 2; }));
  CHECK(differs([](endpoint& e) { e.address = mapped_gid; }));
  CHECK(differs([](endpoint& e) { e.gid_type = gid_type::roce_v1; }));
  CHECK(differs([](endpoint& e) { e.mtu = 256; }));
  CHECK(differs([](endpoint& e) { e.send_psn = 2; }));
  CHECK(differs([](endpoint& e) { e.reads_as_initiator = 2; }));
  CHECK(differs([](endpoint& e) { e.reads_as_target = 2; }));
  CHECK(differs([](endpoint& e) { e.qkey = 2; }));
  CHECK(differs([](endpoint& e) { e.owner = 2; }));
  CHECK(differs([](endpoint& e) { e.generation = 2; }));
}

TEST_CASE("an endpoint prints the fields that its peer needs to connect") {
  CHECK(printed(infiniband_end) ==
        "RC queue pair 0x12ab34, PSN 0xfedcba, InfiniBand, LID 263, GID fe80::2:c903:0:1491 "
        "(InfiniBand), MTU 4096, reads 16/200");
  CHECK(printed(ethernet_end) ==
        "UC queue pair 0x000002, PSN 0x000000, Ethernet, LID 0, GID ::ffff:192.0.2.1 (RoCE v2), "
        "MTU 1024, reads 0/255, connection 19088743 of owner 0x8102fe0c");
}

TEST_CASE("printing an endpoint does not change the stream") {
  std::ostringstream out;
  out << infiniband_end << ' ' << 255;
  CHECK(out.str().ends_with(" 255"));
}

TEST_CASE("the printed form of an endpoint does not depend on the stream's format flags") {
  CHECK(printed_by_a_hex_stream(infiniband_end) == printed(infiniband_end));
}

TEST_CASE("two matching ends can be connected") {
  CHECK(check_compatible(infiniband_end, infiniband_end).has_value());
  CHECK(check_compatible(ethernet_end, ethernet_end).has_value());
  endpoint remote = infiniband_end;
  remote.mtu = 256;  // the smaller MTU is used
  remote.reads_as_target = 0;
  remote.lid = 9;
  CHECK(check_compatible(infiniband_end, remote).has_value());
}

TEST_CASE("the error about mismatched ends contains the name of the field and both values") {
  const auto explained = [](const endpoint& local, const endpoint& remote) {
    const auto answer = check_compatible(local, remote);
    REQUIRE(answer.has_error());
    CHECK(answer.error() == error_kind::mismatch);
    CHECK(answer.error().hint() != nullptr);
    return answer.error().message();
  };
  endpoint remote = infiniband_end;
  remote.type = transport::uc;
  CHECK(contains(explained(infiniband_end, remote), "transport differs: local RC, remote UC"));
  CHECK(contains(explained(remote, infiniband_end), "transport differs: local UC, remote RC"));

  remote = ethernet_end;
  remote.type = transport::rc;
  CHECK(contains(explained(infiniband_end, remote),
                 "link layer differs: local InfiniBand, remote Ethernet"));

  remote = ethernet_end;
  remote.gid_type = gid_type::roce_v1;
  CHECK(
      contains(explained(ethernet_end, remote), "GID type differs: local RoCE v2, remote RoCE v1"));
  CHECK(
      contains(explained(remote, ethernet_end), "GID type differs: local RoCE v1, remote RoCE v2"));
}

TEST_CASE("an endpoint of an earlier connection is refused with both generations") {
  const auto of = [](std::uint32_t owner, std::uint32_t generation) {
    endpoint end = infiniband_end;
    end.owner = owner;
    end.generation = generation;
    return end;
  };
  const auto refused = [&](std::uint32_t generation, std::uint32_t last) {
    const auto answer = check_newer(of(7, generation), of(7, last));
    REQUIRE(answer.has_error());
    CHECK(answer.error() == error_kind::mismatch);
    return answer.error().message();
  };
  CHECK(refused(3, 3) ==
        "compare endpoints: generation of the remote end: 3 is not above 3, the previous one; this "
        "is an endpoint of an earlier connection: pass the new endpoint, which renew() returns at "
        "the peer");
  CHECK(contains(refused(2, 3), "2 is not above 3"));
  CHECK(contains(refused(1, 0xffffffff), "1 is not above 4294967295"));

  CHECK(check_newer(of(7, 4), of(7, 3)).has_value());
  CHECK(check_newer(of(7, 0xffffffff), of(7, 3)).has_value());
}

TEST_CASE(
    "endpoints of other owners or of plain queue pairs never belong to an earlier connection") {
  endpoint last = infiniband_end;
  CHECK(check_newer(infiniband_end, last).has_value());
  last.owner = 7;
  last.generation = 3;
  CHECK(check_newer(infiniband_end, last).has_value());
  CHECK(check_newer(last, infiniband_end).has_value());
  endpoint other = last;
  other.owner = 8;
  other.generation = 1;
  CHECK(check_newer(other, last).has_value());
}

TEST_CASE("an invalid remote end is refused") {
  const auto refusal = [](const endpoint& local, const endpoint& remote) {
    const auto answer = check_compatible(local, remote);
    REQUIRE(answer.has_error());
    CHECK(answer.error() == error_kind::invalid_input);
    return answer.error().message();
  };
  endpoint remote = ethernet_end;
  remote.address = {};
  CHECK(contains(refusal(ethernet_end, remote), "the GID is missing"));
  remote = infiniband_end;
  remote.lid = 0;
  CHECK(contains(refusal(infiniband_end, remote), "the LID is missing"));
  remote = infiniband_end;
  remote.number = 1;
  CHECK(contains(refusal(infiniband_end, remote), "queue pair number (2..0xfffffe): 1 "));
  for (const endpoint& local : {infiniband_end, ethernet_end})
    CHECK(contains(refusal(local, endpoint{}), "the endpoint of a moved-from queue pair has 0"));
  CHECK(contains(refusal(endpoint{}, ethernet_end), "queue pair number (2..0xfffffe): 0 "));
}
