// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/frames.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// The shared parts of the tests of receive scaling: work queues, and a queue pair that spreads
/// frames over them.

inline constexpr std::uint64_t ipv4_addresses = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
inline constexpr std::uint64_t ipv6_addresses = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
inline constexpr std::uint64_t tcp_ports = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
inline constexpr std::uint64_t udp_ports = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

/// The hash with the key of Microsoft's examples, by which implementations are verified.
ibv_rx_hash_conf by(std::uint64_t fields);
std::uint32_t hash_of(const frame& bytes, std::uint64_t fields);

/// A frame with an IPv4 packet from one address to another.
frame ipv4_frame(const char* source, const char* destination, std::uint8_t protocol,
                 const frame& content);
/// A frame with a UDP packet from this address to 10.0.0.2.
frame from(const std::string& source);

int post(ibv_wq* queue, std::uint64_t id, ibv_sge piece);
int change(ibv_wq* queue, ibv_wq_state state);

/// Work queues, each with its own completion queue, and with all of their receives posted.
struct work_queues : endpoint {
  static constexpr std::uint32_t room = 4608;
  static constexpr std::uint32_t receives = 4;

  explicit work_queues(std::size_t count, const char* device = "soft0", int completions = 8);
  work_queues(const work_queues&) = delete;
  work_queues& operator=(const work_queues&) = delete;
  ~work_queues();

  /// The attributes with which this work queue was created.
  ibv_wq_init_attr asked(std::size_t number) const;
  std::size_t place(std::size_t number, std::uint64_t id) const;
  int post_to(std::size_t number, std::uint64_t id) const;
  ibv_rwq_ind_table* make_table();
  ibv_qp_init_attr_ex spreading(std::uint64_t fields) const;
  /// From here on, frames to own_mac(2) are spread over the work queues.
  void spread(std::uint64_t fields);
  /// The next completion of this work queue.
  ibv_wc next(std::size_t number) const;
  /// Sends a frame, and returns the work queue that receives it, unchanged. Its receive is posted
  /// again.
  std::size_t who_gets(const frame& sent) const;
  std::size_t queue_for(const frame& sent, std::uint64_t fields) const;
  /// A source address whose datagrams the hash assigns to this work queue.
  std::string source_for(std::size_t number) const;
  /// Destroys the spreading queue pair, but not the work queues.
  void stop_spreading();

  std::vector<ibv_cq*> completion_queues;
  std::vector<ibv_wq*> queues;
  ibv_rwq_ind_table* table = nullptr;
  ibv_qp* spreader = nullptr;
  std::vector<ibv_flow*> flows;
};
