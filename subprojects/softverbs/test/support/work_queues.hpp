// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/frames.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// Code that the tests of receive scaling share: work queues, and a queue pair that distributes
/// frames among them.

inline constexpr std::uint64_t ipv4_addresses = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
inline constexpr std::uint64_t ipv6_addresses = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
inline constexpr std::uint64_t tcp_ports = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
inline constexpr std::uint64_t udp_ports = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;

/// Returns a hash configuration that uses the key from Microsoft's published examples.
ibv_rx_hash_conf by(std::uint64_t fields);
std::uint32_t hash_of(const frame& bytes, std::uint64_t fields);

/// Returns a frame that contains an IPv4 packet from `source` to `destination`.
frame ipv4_frame(const char* source, const char* destination, std::uint8_t protocol,
                 const frame& content);
/// Returns a frame that contains a UDP packet from this address to 10.0.0.2.
frame from(const std::string& source);

int post(ibv_wq* queue, std::uint64_t id, ibv_sge piece);
int change(ibv_wq* queue, ibv_wq_state state);

/// A set of work queues. Each of them has its own completion queue, and all of its receives are
/// posted.
struct work_queues : endpoint {
  static constexpr std::uint32_t room = 4608;
  static constexpr std::uint32_t receives = 4;

  explicit work_queues(std::size_t count, const char* device = "soft0", int completions = 8);
  work_queues(const work_queues&) = delete;
  work_queues& operator=(const work_queues&) = delete;
  ~work_queues();

  /// Returns the attributes with which this work queue was created.
  ibv_wq_init_attr asked(std::size_t number) const;
  std::size_t place(std::size_t number, std::uint64_t id) const;
  int post_to(std::size_t number, std::uint64_t id) const;
  ibv_rwq_ind_table* make_table();
  ibv_qp_init_attr_ex spreading(std::uint64_t fields) const;
  /// Creates a queue pair that distributes the frames sent to own_mac(2) among the work queues.
  void spread(std::uint64_t fields);
  /// Waits for the next completion of a receive in this work queue.
  ibv_wc next(std::size_t number) const;
  /// Waits until one of the work queues has received this frame, which the caller has sent. Checks
  /// that the frame is unchanged, and posts its receive again. Returns the number of the work
  /// queue.
  std::size_t who_gets(const frame& sent) const;
  std::size_t queue_for(const frame& sent, std::uint64_t fields) const;
  /// Returns a source address whose packets the hash assigns to this work queue.
  std::string source_for(std::size_t number) const;
  /// Destroys the queue pair that distributes the frames, but not the work queues.
  void stop_spreading();

  std::vector<ibv_cq*> completion_queues;
  std::vector<ibv_wq*> queues;
  ibv_rwq_ind_table* table = nullptr;
  ibv_qp* spreader = nullptr;
  std::vector<ibv_flow*> flows;
};
