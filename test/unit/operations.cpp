// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting.hpp>

#include <array>
#include <cstring>
#include <vector>

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

TEST_CASE("by default a request asks for a completion and sets no other option") {
  const verbspp::work_tag tag;
  CHECK(tag.id == 0);
  CHECK(tag.signaled);
  CHECK(verbspp::receive_tag{}.id == 0);
  const verbspp::send_operation send;
  CHECK(send.elements.empty());
  CHECK_FALSE(send.immediate);
  CHECK_FALSE(send.solicited);
  CHECK_FALSE(send.fenced);
  const verbspp::remote_memory<verbspp::access::all_remote> memory(1, 2, verbspp::remote_key(3U));
  const verbspp::write_operation write{.remote = memory};
  CHECK_FALSE(write.immediate);
  CHECK_FALSE(write.solicited);
  CHECK_FALSE(write.fenced);
  const verbspp::read_operation read{.remote = memory};
  CHECK_FALSE(read.fenced);
}

namespace {

verbspp::send_operation some_send() {
  const auto part = verbspp::gather_element::from_native({0x1000, 64, 7});
  return {.elements = part, .solicited = true};
}

}  // namespace

TEST_CASE("an operation can be returned and stored and copied") {
  std::vector<verbspp::send_operation> stored;
  for (int i = 0; i < 3; ++i) stored.push_back(some_send());
  const auto copy = stored;
  stored.clear();
  stored.shrink_to_fit();
  for (const auto& each : copy) {
    ibv_send_wr native;
    std::memset(&native, 0xee, sizeof native);
    verbspp::detail::fill(native, each, {.id = 9, .signaled = false});
    CHECK(native.wr_id == 9);
    CHECK(native.opcode == IBV_WR_SEND);
    CHECK(native.send_flags == IBV_SEND_SOLICITED);
    const auto elements = verbspp::operation_traits<verbspp::send_operation>::elements(each);
    REQUIRE(elements.size == 1);
    CHECK(elements.single.addr == 0x1000);
    CHECK(elements.single.length == 64);
    CHECK(elements.single.lkey == 7);
  }
}

TEST_CASE(
    "the flags for the extended interface follow from the operations that a device supports") {
  using namespace verbspp;
  using detail::send_operations;
  constexpr std::uint64_t sends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t writes = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  ibv_device_attr_ex device{};
  CHECK(send_operations::capabilities(transport::ud, device) == sends);
  CHECK(send_operations::capabilities(transport::uc, device) == (sends | writes));
  CHECK(send_operations::capabilities(transport::rc, device) ==
        (sends | writes | IBV_QP_EX_WITH_RDMA_READ));

  device.orig_attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  CHECK(send_operations::capabilities(transport::uc, device) ==
        (sends | writes | IBV_QP_EX_WITH_BIND_MW));
  device.orig_attr.device_cap_flags |= IBV_DEVICE_MEM_MGT_EXTENSIONS;
  device.orig_attr.atomic_cap = IBV_ATOMIC_HCA;
  CHECK(send_operations::capabilities(transport::ud, device) == sends);
  CHECK(send_operations::capabilities(transport::rc, device) ==
        (sends | writes | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_BIND_MW |
         IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV |
         IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD));
}

namespace {

/// The `ibv_qp_ex` of a newer libibverbs, which supports flush requests. It records the arguments
/// of a call.
struct newer_queue_pair : ibv_qp_ex {
  void (*wr_flush)(ibv_qp_ex* to, std::uint32_t rkey, std::uint64_t address, std::size_t length,
                   std::uint8_t placement, std::uint8_t scope);
  struct {
    std::uint32_t rkey;
    std::uint64_t address;
    std::size_t length;
    std::uint8_t placement;
    std::uint8_t scope;
  } flushed;
};

using flush_traits = verbspp::operation_traits<verbspp::flush_operation>;

}  // namespace

TEST_CASE("a flush requests its range and placement if the peer granted them") {
  using namespace verbspp;
  newer_queue_pair device{};
  CHECK_FALSE(flush_traits::has_call(&device));
  device.wr_flush = [](ibv_qp_ex* to, std::uint32_t rkey, std::uint64_t address, std::size_t length,
                       std::uint8_t placement, std::uint8_t scope) {
    static_cast<newer_queue_pair*>(to)->flushed = {rkey, address, length, placement, scope};
  };
  CHECK(flush_traits::has_call(&device));

  const remote_memory<access::flush_global | access::flush_persistent> both(
      0x1000, 64, verbspp::remote_key(7U));
  const remote_memory<access::flush_global> global = both;
  flush_traits::start(&device, {.remote = both,
                                .placement = flush_placement::global | flush_placement::persistent,
                                .scope = flush_scope::region});
  CHECK(device.flushed.rkey == 7);
  CHECK(device.flushed.address == 0x1000);
  CHECK(device.flushed.length == 64);
  CHECK(device.flushed.placement == 3);
  CHECK(device.flushed.scope == 1);
  flush_traits::start(&device, {.remote = global});
  CHECK(device.flushed.placement == 1);
  CHECK(device.flushed.scope == 0);

  const flush_operation nowhere{.remote = both, .placement = {}};
  CHECK_FALSE(flush_traits::is_sound(nowhere));
  CHECK(flush_traits::unsoundness(nowhere) == error_kind::invalid_input);
  const flush_operation not_granted{.remote = global, .placement = flush_placement::persistent};
  CHECK_FALSE(flush_traits::is_sound(not_granted));
  CHECK(flush_traits::unsoundness(not_granted) == error_kind::permission);
  CHECK(flush_traits::is_sound({.remote = both, .placement = flush_placement::persistent}));
}

TEST_CASE("a bind request contains the window's next key and its part and no immediate data") {
  using namespace verbspp;
  ibv_mw window{};
  window.rkey = 0x123456ff;
  ibv_mr region{};
  const auto part = window_part<access::remote_read>::from_native(&region, 0x1000, 64);
  ibv_send_wr native;
  std::memset(&native, 0xee, sizeof native);
  detail::fill(native, detail::bind_operation(&window, part, {.fenced = true}), {.id = 7});
  CHECK(native.wr_id == 7);
  CHECK(native.opcode == IBV_WR_BIND_MW);
  CHECK(native.send_flags == (IBV_SEND_SIGNALED | IBV_SEND_FENCE));
  CHECK(native.imm_data == 0);
  CHECK(native.bind_mw.mw == &window);
  CHECK(native.bind_mw.rkey == 0x12345600);  // only the last eight bits change
  CHECK(native.bind_mw.bind_info.mr == &region);
  CHECK(native.bind_mw.bind_info.addr == 0x1000);
  CHECK(native.bind_mw.bind_info.length == 64);
  CHECK(native.bind_mw.bind_info.mw_access_flags == IBV_ACCESS_REMOTE_READ);
  CHECK(window.rkey == 0x123456ff);
}
