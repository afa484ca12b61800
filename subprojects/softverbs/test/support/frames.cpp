// SPDX-License-Identifier: Apache-2.0
#include "support/frames.hpp"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace {

using capabilities = std::array<__user_cap_data_struct, 2>;

__user_cap_header_struct own_header() { return {_LINUX_CAPABILITY_VERSION_3, 0}; }

capabilities own_capabilities() {
  capabilities result{};
  __user_cap_header_struct header = own_header();
  if (::syscall(SYS_capget, &header, result.data()) != 0) throw std::runtime_error("capget failed");
  return result;
}

void set_capabilities(const capabilities& wanted) {
  __user_cap_header_struct header = own_header();
  if (::syscall(SYS_capset, &header, wanted.data()) != 0) throw std::runtime_error("capset failed");
}

constexpr unsigned net_raw = 1U << CAP_NET_RAW;

options raw(const char* device, const endpoint* host) {
  return {.device = device, .type = IBV_QPT_RAW_PACKET, .host = host};
}

/// Returns true if the frame belongs to one of this process's tests. Rules that match all frames
/// also match those that unrelated processes send.
bool is_of_own(const frame& received) {
  const mac own = own_mac(0);
  return received.size() >= 12 && std::equal(own.begin(), own.end() - 1, received.begin() + 6);
}

frame ports(std::uint16_t source, std::uint16_t destination, std::size_t bytes) {
  frame result(bytes);
  result[0] = static_cast<std::uint8_t>(source >> 8);
  result[1] = static_cast<std::uint8_t>(source);
  result[2] = static_cast<std::uint8_t>(destination >> 8);
  result[3] = static_cast<std::uint8_t>(destination);
  return result;
}

constexpr std::size_t outgoing = std::size_t{1} << 19;
constexpr std::uint64_t sent_id = 1000;

}  // namespace

mac own_mac(std::uint8_t which) {
  const auto process = static_cast<std::uint32_t>(::getpid());
  return {0x02,
          static_cast<std::uint8_t>(process >> 24),
          static_cast<std::uint8_t>(process >> 16),
          static_cast<std::uint8_t>(process >> 8),
          static_cast<std::uint8_t>(process),
          which};
}

mac own_group(std::uint8_t which) {
  mac result = own_mac(which);
  result[0] |= 1;
  return result;
}

ibv_gid gid_of(const mac& group) {
  ibv_gid result{};
  std::copy(group.begin(), group.end(), result.raw + 10);
  return result;
}

frame frame_of(const mac& to, const mac& from, std::uint16_t type, const frame& content) {
  frame result(to.begin(), to.end());
  result.insert(result.end(), from.begin(), from.end());
  result.push_back(static_cast<std::uint8_t>(type >> 8));
  result.push_back(static_cast<std::uint8_t>(type));
  result.insert(result.end(), content.begin(), content.end());
  return result;
}

frame tagged(const frame& plain, std::uint16_t tag) {
  frame result = plain;
  const frame bytes{0x81, 0x00, static_cast<std::uint8_t>(tag >> 8),
                    static_cast<std::uint8_t>(tag)};
  result.insert(result.begin() + 12, bytes.begin(), bytes.end());
  return result;
}

frame joined(frame left, const frame& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

frame udp(std::uint16_t source, std::uint16_t destination) { return ports(source, destination, 8); }

frame tcp(std::uint16_t source, std::uint16_t destination) {
  return ports(source, destination, 20);
}

frame ipv4(std::uint8_t protocol, const frame& content, std::uint8_t fragment) {
  frame header(24);
  header[0] = 0x46;
  header[1] = 0x28;
  header[7] = fragment;
  header[8] = 61;
  header[9] = protocol;
  header[12] = header[16] = 10;
  header[15] = 1;
  header[19] = 2;
  return joined(header, content);
}

frame ipv6(std::uint8_t next, const frame& content) {
  frame header(40);
  header[0] = 0x62;
  header[1] = 0x81;
  header[3] = 0x77;
  header[6] = next;
  header[7] = 61;
  header[8] = header[24] = 0xfd;
  header[23] = 1;
  header[39] = 2;
  return joined(header, content);
}

bool may_send_frames() { return on_ethernet() && (own_capabilities()[0].effective & net_raw) != 0; }

without_privilege::without_privilege() {
  capabilities less = own_capabilities();
  less[0].effective &= ~net_raw;
  set_capabilities(less);
}

without_privilege::~without_privilege() {
  capabilities more = own_capabilities();
  more[0].effective |= more[0].permitted & net_raw;
  set_capabilities(more);
}

rule::rule(ibv_flow_attr_type type, std::uint16_t priority, std::uint32_t flags)
    : bytes_(sizeof(ibv_flow_attr)) {
  attributes().type = type;
  attributes().priority = priority;
  attributes().flags = flags;
  attributes().port = 1;
}

rule& rule::to(const mac& destination) {
  ibv_flow_spec_eth wanted{};
  std::copy(destination.begin(), destination.end(), wanted.val.dst_mac);
  std::fill(std::begin(wanted.mask.dst_mac), std::end(wanted.mask.dst_mac), std::uint8_t{0xff});
  return with(IBV_FLOW_SPEC_ETH, wanted);
}

rule& rule::tagging(std::uint32_t tag) {
  ibv_flow_spec_action_tag wanted{};
  wanted.tag_id = tag;
  return with(IBV_FLOW_SPEC_ACTION_TAG, wanted);
}

frame_end::frame_end(const char* device, const endpoint* host) : endpoint(raw(device, host)) {
  start();
}

frame_end::~frame_end() { stop_hearing(); }

void frame_end::start() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = wanted.port;
  if (ibv_modify_qp(pair, &attributes, IBV_QP_STATE | IBV_QP_PORT) != 0 ||
      change(IBV_QPS_RTR) != 0 || change(IBV_QPS_RTS) != 0)
    throw std::runtime_error("a raw packet queue pair doesn't reach RTS");
  post_all();
}

void frame_end::post_all() {
  for (std::uint64_t id = 0; id < receives; ++id)
    if (post_receive(id, {piece(id * room, room)}) != 0)
      throw std::runtime_error("ibv_post_recv failed");
}

ibv_flow* frame_end::hear(rule wanted_rule) {
  ibv_flow* const made = ibv_create_flow(pair, &wanted_rule.attributes());
  if (made == nullptr)
    throw std::runtime_error("ibv_create_flow failed with errno " + std::to_string(errno));
  flows.push_back(made);
  return made;
}

void frame_end::stop_hearing() {
  for (ibv_flow* each : flows) ibv_destroy_flow(each);
  flows.clear();
}

ibv_wc_status frame_end::send_frame(const frame& bytes) {
  std::copy(bytes.begin(), bytes.end(), memory.begin() + outgoing);
  if (send(sent_id, {piece(outgoing, static_cast<std::uint32_t>(bytes.size()))}) != 0)
    throw std::runtime_error("ibv_post_send failed");
  const ibv_wc completion = wait();
  if (completion.wr_id != sent_id) throw std::runtime_error("an unexpected completion arrived");
  return completion.status;
}

frame frame_end::next() {
  for (;;) {
    const ibv_wc completion = wait();
    if (completion.status != IBV_WC_SUCCESS || completion.opcode != IBV_WC_RECV)
      throw std::runtime_error("a receive failed, or another request completed");
    const frame result = taken(completion.wr_id, completion.byte_len);
    if (is_of_own(result)) return result;
  }
}

frame frame_end::taken(std::uint64_t id, std::uint32_t length) {
  const auto start_of = memory.begin() + static_cast<std::ptrdiff_t>(id * room);
  frame result(start_of, start_of + length);
  if (post_receive(id, {piece(id * room, room)}) != 0)
    throw std::runtime_error("ibv_post_recv failed");
  return result;
}

tag_reader::tag_reader(const char* device) : frame_end(device) {
  ibv_cq_init_attr_ex asked{};
  asked.cqe = receives;
  asked.wc_flags = IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_BYTE_LEN;
  tags = ibv_create_cq_ex(context, &asked);
  if (tags == nullptr) throw std::runtime_error("ibv_create_cq_ex failed");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = queue;
  attributes.recv_cq = ibv_cq_ex_to_cq(tags);
  attributes.qp_type = IBV_QPT_RAW_PACKET;
  attributes.cap = {8, receives, 1, 1, 0};
  ibv_destroy_qp(pair);
  pair = ibv_create_qp(domain, &attributes);
  if (pair == nullptr) throw std::runtime_error("ibv_create_qp failed");
  start();
}

tag_reader::~tag_reader() {
  stop_hearing();
  ibv_destroy_qp(pair);
  pair = nullptr;
  ibv_destroy_cq(ibv_cq_ex_to_cq(tags));
}

std::uint32_t tag_reader::next_tag() {
  for (;;) {
    ibv_poll_cq_attr nothing{};
    if (!eventually([&] { return ibv_start_poll(tags, &nothing) == 0; }))
      throw std::runtime_error("no frame arrived");
    const bool received = tags->status == IBV_WC_SUCCESS;
    const std::uint64_t id = tags->wr_id;
    const std::uint32_t length = ibv_wc_read_byte_len(tags);
    const std::uint32_t tag = ibv_wc_read_flow_tag(tags);
    ibv_end_poll(tags);
    if (!received) throw std::runtime_error("a receive failed");
    if (is_of_own(taken(id, length))) return tag;
  }
}
