// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/work/posting.hpp>
#include <verbspp/work/work_request.hpp>

#include <array>
#include <cstring>

using verbspp::immediate_data;

TEST_CASE("immediate data travels in network byte order") {
  const auto network = immediate_data(0x01020304).network();
  std::array<unsigned char, 4> wire{};
  std::memcpy(wire.data(), &network, wire.size());
  CHECK(wire == std::array<unsigned char, 4>{1, 2, 3, 4});
}

TEST_CASE("immediate data is the same number at both ends") {
  for (const std::uint32_t value : {0U, 1U, 0x01020304U, 0x80000000U, 0xffffffffU}) {
    const immediate_data sent(value);
    const auto received = immediate_data::from_network(sent.network());
    CHECK(received.value() == value);
    CHECK(received == sent);
  }
  CHECK_FALSE(immediate_data(1) == immediate_data(2));
}

TEST_CASE("a request asks for a completion and nothing else unless told") {
  const verbspp::send_request send;
  CHECK(send.id == 0);
  CHECK(send.elements.empty());
  CHECK_FALSE(send.immediate);
  CHECK(send.signaled);
  CHECK_FALSE(send.solicited);
  CHECK_FALSE(send.fenced);
  const verbspp::remote_memory<verbspp::access::all_remote> memory(1, 2, 3);
  const verbspp::write_request write{.remote = memory};
  CHECK_FALSE(write.immediate);
  CHECK(write.signaled);
  CHECK_FALSE(write.solicited);
  CHECK_FALSE(write.fenced);
  const verbspp::read_request read{.remote = memory};
  CHECK(read.signaled);
  CHECK_FALSE(read.fenced);
}

TEST_CASE(
    "a bind has the window's next key, the part, and no immediate data, which drivers refuse") {
  using namespace verbspp;
  ibv_mw window{};
  window.rkey = 0x123456ff;
  ibv_mr region{};
  const auto part = window_part<access::remote_read>::from_native(&region, 0x1000, 64);
  ibv_send_wr native;
  std::memset(&native, 0xee, sizeof native);
  detail::fill(native, detail::window_binding(&window, part, {.id = 7, .fenced = true}));
  CHECK(native.wr_id == 7);
  CHECK(native.opcode == IBV_WR_BIND_MW);
  CHECK(native.send_flags == (IBV_SEND_SIGNALED | IBV_SEND_FENCE));
  CHECK(native.imm_data == 0);
  CHECK(native.bind_mw.mw == &window);
  CHECK(native.bind_mw.rkey == 0x12345600);  // only the last eight bits are the program's
  CHECK(native.bind_mw.bind_info.mr == &region);
  CHECK(native.bind_mw.bind_info.addr == 0x1000);
  CHECK(native.bind_mw.bind_info.length == 64);
  CHECK(native.bind_mw.bind_info.mw_access_flags == IBV_ACCESS_REMOTE_READ);
  CHECK(window.rkey == 0x123456ff);
}
