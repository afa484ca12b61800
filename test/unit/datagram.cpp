// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/work/datagram.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <vector>

using namespace verbspp;

namespace {

using memory = std::vector<std::byte>;

memory of_bytes(std::initializer_list<unsigned> values) {
  memory bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

void append(memory& to, const memory& more) { to.insert(to.end(), more.begin(), more.end()); }

/// An IPv4 header for a datagram from 198.18.83.1 to 198.18.83.2. Its checksum was calculated by
/// hand (RFC 1071).
const memory ipv4_header = of_bytes({0x45, 0,  0,  60, 0,   0,  0x40, 0, 64, 17, 0x08, 0x89,  //
                                     198,  18, 83, 1,  198, 18, 83,   2});
const gid ipv4_source{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 83, 1}};
const gid ipv4_destination{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 18, 83, 2}};

const gid sender{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, 0x14, 0x91}};
const gid receiver{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0, 0x14, 0x92}};

memory global_route_header() {
  memory header = of_bytes({0x60, 0, 0, 0, 0, 8, 0x1b, 64});
  for (const gid& address : {sender, receiver})
    for (const unsigned byte : address.bytes) header.push_back(static_cast<std::byte>(byte));
  return header;
}

memory ipv4_after(const memory& first) {
  memory header = first;
  header.resize(20);
  append(header, ipv4_header);
  return header;
}

ibv_wc completion_of(std::size_t length, unsigned flags) {
  ibv_wc completion{};
  completion.status = IBV_WC_SUCCESS;
  completion.opcode = IBV_WC_RECV;
  completion.byte_len = static_cast<std::uint32_t>(length);
  completion.src_qp = 0x123456;
  completion.slid = 17;
  completion.sl = 3;
  completion.wc_flags = flags;
  return completion;
}

received_datagram received(memory& bytes, unsigned flags = IBV_WC_GRH) {
  return received_datagram::from(work_completion(completion_of(bytes.size(), flags)), bytes)
      .value();
}

}  // namespace

TEST_CASE("the payload starts after the global route header") {
  memory bytes = global_route_header();
  append(bytes, of_bytes({1, 2, 3}));
  const auto datagram = received(bytes);
  CHECK(std::ranges::equal(datagram.payload(), of_bytes({1, 2, 3})));
  CHECK(datagram.payload().data() == bytes.data() + 40);
  CHECK(datagram.header().size() == 40);
  CHECK(datagram.source().value() == 0x123456);
  CHECK(datagram.source_lid().value() == 17);
  CHECK(datagram.service_level().value() == 3);
  CHECK_FALSE(datagram.immediate());
}

TEST_CASE("an empty datagram has an empty payload") {
  memory bytes = global_route_header();
  CHECK(received(bytes).payload().empty());
}

TEST_CASE("the payload ends where the datagram or the memory ends") {
  memory bytes = global_route_header();
  append(bytes, of_bytes({1, 2, 3, 4}));
  const auto longer = received_datagram::from(work_completion(completion_of(42, 0)), bytes);
  CHECK(longer.value().payload().size() == 2);
  const auto shorter = received_datagram::from(work_completion(completion_of(4096, 0)), bytes);
  CHECK(shorter.value().payload().size() == 4);
  const auto nothing = received_datagram::from(work_completion(completion_of(4096, IBV_WC_GRH)),
                                               std::span(bytes).first(7));
  CHECK(nothing.value().payload().empty());
  CHECK_FALSE(nothing.value().has_global_route());
  CHECK_FALSE(nothing.value().source_address());
}

TEST_CASE("a failed receive is not a datagram") {
  ibv_wc completion = completion_of(0, 0);
  completion.status = IBV_WC_WR_FLUSH_ERR;
  completion.wr_id = 7;
  memory bytes(64);
  const auto datagram = received_datagram::from(work_completion(completion), bytes);
  REQUIRE(datagram.has_error());
  CHECK(datagram.error().status() == work_status::flushed);
  CHECK(datagram.error().wr_id() == 7);
}

TEST_CASE("the header contains the addresses") {
  memory bytes = global_route_header();
  CHECK(received(bytes).source_address() == sender);
  CHECK(received(bytes).destination_address() == receiver);
  CHECK_FALSE(received(bytes, 0).source_address());
  CHECK_FALSE(received(bytes, 0).destination_address());
}

TEST_CASE("RoCE v2 over IPv4 has its header in the last 20 bytes") {
  memory bytes = ipv4_after({});
  CHECK(received(bytes).source_address() == ipv4_source);
  CHECK(received(bytes).destination_address() == ipv4_destination);
}

TEST_CASE("the checksum identifies an IPv4 header") {
  memory bytes = ipv4_after(of_bytes({0x60}));
  CHECK(received(bytes).source_address() == ipv4_source);

  // An IPv6 header that contains the first byte of an IPv4 header at the position where an IPv4
  // header would begin.
  memory alike = global_route_header();
  alike[20] = std::byte{0x45};
  const auto address = received(alike).source_address();
  REQUIRE(address);
  CHECK(address->bytes[12] == 0x45);
  CHECK(address->bytes[0] == 0xfe);
}

TEST_CASE("immediate data arrives with the datagram") {
  memory bytes = global_route_header();
  ibv_wc completion = completion_of(bytes.size(), IBV_WC_GRH | IBV_WC_WITH_IMM);
  completion.imm_data = immediate_data(0x01020304).network();
  const auto datagram = received_datagram::from(work_completion(completion), bytes);
  CHECK(datagram.value().immediate() == immediate_data(0x01020304));
}
