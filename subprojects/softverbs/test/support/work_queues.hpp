// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/frames.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// What the tests of receive scaling build on: work queues, and what spreads frames over them.

inline constexpr std::uint64_t ipv4_addresses = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
inline constexpr std::uint64_t ipv6_addresses = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
inline constexpr std::uint64_t tcp_ports = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
inline constexpr std::uint64_t udp_ports = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

/// With the key of Microsoft's examples, which others are verified by.
ibv_rx_hash_conf by(std::uint64_t fields);
std::uint32_t hash_of(const frame& bytes, std::uint64_t fields);

/// From that address to another, with what follows the header.
frame ipv4_frame(const char* source, const char* destination, std::uint8_t protocol,
                 const frame& content);
/// From that address to 10.0.0.2, by UDP.
frame from(const std::string& source);

int post(ibv_wq* queue, std::uint64_t id, ibv_sge piece);
int change(ibv_wq* queue, ibv_wq_state state);

/// Work queues with a completion queue each, and all of their receives posted.
struct work_queues : endpoint {
  static constexpr std::uint32_t room = 4608;
  static constexpr std::uint32_t receives = 4;

  explicit work_queues(std::size_t count, const char* device = "soft0", int completions = 8);
  work_queues(const work_queues&) = delete;
  work_queues& operator=(const work_queues&) = delete;
  ~work_queues();

  /// As it made that one.
  ibv_wq_init_attr asked(std::size_t number) const;
  std::size_t place(std::size_t number, std::uint64_t id) const;
  int post_to(std::size_t number, std::uint64_t id) const;
  ibv_rwq_ind_table* make_table();
  ibv_qp_init_attr_ex spreading(std::uint64_t fields) const;
  /// From here on, what is for own_mac(2) is for them.
  void spread(std::uint64_t fields);
  /// The next completion of that one.
  ibv_wc next(std::size_t number) const;
  /// Which one it is that gets the frame next, whole; its receive is posted again.
  std::size_t who_gets(const frame& sent) const;
  std::size_t queue_for(const frame& sent, std::uint64_t fields) const;
  /// Whose datagrams are for that one, by their addresses.
  std::string source_for(std::size_t number) const;
  /// What spreads, and not the queues themselves.
  void stop_spreading();

  std::vector<ibv_cq*> completion_queues;
  std::vector<ibv_wq*> queues;
  ibv_rwq_ind_table* table = nullptr;
  ibv_qp* spreader = nullptr;
  std::vector<ibv_flow*> flows;
};
