// SPDX-License-Identifier: Apache-2.0
#include "support/work_queues.hpp"

#include "machine/receive_hash.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <stdexcept>

namespace {

constexpr std::array<std::uint8_t, 40> published_key{
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
    0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
    0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

options on(const char* device) { return {.device = device}; }

template <typename Object>
Object* made(Object* object) {
  if (object == nullptr)
    throw std::runtime_error("an object for spreading frames can't be created");
  return object;
}

}  // namespace

ibv_rx_hash_conf by(std::uint64_t fields) {
  ibv_rx_hash_conf result{};
  result.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
  result.rx_hash_key_len = published_key.size();
  result.rx_hash_key = const_cast<std::uint8_t*>(published_key.data());
  result.rx_hash_fields_mask = fields;
  return result;
}

std::uint32_t hash_of(const frame& bytes, std::uint64_t fields) {
  return softverbs::receive_hash(by(fields))
      .of(softverbs::read_frame(std::as_bytes(std::span(bytes))));
}

frame ipv4_frame(const char* source, const char* destination, std::uint8_t protocol,
                 const frame& content) {
  constexpr std::size_t header = 14;
  frame result = frame_of(own_mac(2), own_mac(1), ipv4_type, ipv4(protocol, content));
  if (::inet_pton(AF_INET, source, &result[header + 12]) != 1 ||
      ::inet_pton(AF_INET, destination, &result[header + 16]) != 1)
    throw std::invalid_argument("no address");
  return result;
}

frame from(const std::string& source) {
  return ipv4_frame(source.c_str(), "10.0.0.2", IPPROTO_UDP, udp(1000, 2000));
}

int post(ibv_wq* queue, std::uint64_t id, ibv_sge piece) {
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_wq_recv(queue, &request, &bad);
  if (bad != (error == 0 ? nullptr : &request))
    throw std::runtime_error("ibv_post_wq_recv returned the wrong bad_wr");
  return error;
}

int change(ibv_wq* queue, ibv_wq_state state) {
  ibv_wq_attr attributes{};
  attributes.attr_mask = IBV_WQ_ATTR_STATE;
  attributes.wq_state = state;
  return ibv_modify_wq(queue, &attributes);
}

work_queues::work_queues(std::size_t count, const char* device, int completions)
    : endpoint(on(device)) {
  for (std::size_t number = 0; number < count; ++number) {
    completion_queues.push_back(made(ibv_create_cq(context, completions, nullptr, nullptr, 0)));
    ibv_wq_init_attr attributes = asked(number);
    queues.push_back(made(ibv_create_wq(context, &attributes)));
    if (::change(queues.back(), IBV_WQS_RDY) != 0) throw std::runtime_error("ibv_modify_wq failed");
    for (std::uint64_t id = 0; id < receives; ++id)
      if (post_to(number, id) != 0) throw std::runtime_error("ibv_post_wq_recv failed");
  }
}

work_queues::~work_queues() {
  stop_spreading();
  for (ibv_wq* each : queues) ibv_destroy_wq(each);
  for (ibv_cq* each : completion_queues) ibv_destroy_cq(each);
}

void work_queues::stop_spreading() {
  for (ibv_flow* each : flows) ibv_destroy_flow(each);
  flows.clear();
  if (spreader != nullptr) ibv_destroy_qp(spreader);
  spreader = nullptr;
  if (table != nullptr) ibv_destroy_rwq_ind_table(table);
  table = nullptr;
}

ibv_wq_init_attr work_queues::asked(std::size_t number) const {
  ibv_wq_init_attr result{};
  result.wq_type = IBV_WQT_RQ;
  result.max_wr = receives;
  result.max_sge = 2;
  result.pd = domain;
  result.cq = completion_queues[number];
  return result;
}

std::size_t work_queues::place(std::size_t number, std::uint64_t id) const {
  return (number * receives + id) * room;
}

int work_queues::post_to(std::size_t number, std::uint64_t id) const {
  return ::post(queues[number], id, piece(place(number, id), room));
}

ibv_rwq_ind_table* work_queues::make_table() {
  ibv_rwq_ind_table_init_attr attributes{};
  attributes.log_ind_tbl_size = static_cast<std::uint32_t>(std::bit_width(queues.size()) - 1);
  attributes.ind_tbl = queues.data();
  return ibv_create_rwq_ind_table(context, &attributes);
}

ibv_qp_init_attr_ex work_queues::spreading(std::uint64_t fields) const {
  ibv_qp_init_attr_ex result{};
  result.qp_type = IBV_QPT_RAW_PACKET;
  result.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  result.pd = domain;
  result.rwq_ind_tbl = table;
  result.rx_hash_conf = by(fields);
  return result;
}

void work_queues::spread(std::uint64_t fields) {
  table = made(make_table());
  ibv_qp_init_attr_ex attributes = spreading(fields);
  spreader = made(ibv_create_qp_ex(context, &attributes));
  rule for_them;
  for_them.to(own_mac(2));
  flows.push_back(made(ibv_create_flow(spreader, &for_them.attributes())));
}

ibv_wc work_queues::next(std::size_t number) const {
  ibv_wc result{};
  if (!eventually([&] { return ibv_poll_cq(completion_queues[number], 1, &result) == 1; }))
    throw std::runtime_error("no completion arrived");
  if (result.qp_num != queues[number]->wq_num)
    throw std::runtime_error("a completion belongs to another queue");
  return result;
}

std::size_t work_queues::who_gets(const frame& sent) const {
  std::size_t found = queues.size();
  ibv_wc completion{};
  if (!eventually([&] {
        for (std::size_t number = 0; number < queues.size(); ++number)
          if (ibv_poll_cq(completion_queues[number], 1, &completion) == 1) found = number;
        return found != queues.size();
      }))
    throw std::runtime_error("no work queue received the frame");
  if (completion.status != IBV_WC_SUCCESS || completion.opcode != IBV_WC_RECV ||
      completion.qp_num != queues[found]->wq_num || completion.byte_len != sent.size() ||
      !std::equal(sent.begin(), sent.end(),
                  memory.begin() + static_cast<std::ptrdiff_t>(place(found, completion.wr_id))))
    throw std::runtime_error("a different frame arrived");
  if (post_to(found, completion.wr_id) != 0) throw std::runtime_error("ibv_post_wq_recv failed");
  return found;
}

std::size_t work_queues::queue_for(const frame& sent, std::uint64_t fields) const {
  return hash_of(sent, fields) & (queues.size() - 1);
}

std::string work_queues::source_for(std::size_t number) const {
  for (int last = 1; last < 255; ++last) {
    const std::string source = "10.0.1." + std::to_string(last);
    if (queue_for(from(source), ipv4_addresses) == number) return source;
  }
  throw std::runtime_error("no source address leads to this queue");
}
