// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

/// The data that a queue pair's peer needs.
struct address {
  std::uint32_t qpn;
  std::uint32_t rkey;
  std::uint64_t memory;
  ibv_gid gid;
  std::uint16_t lid;
};

/// Opens the first device named soft*, and holds the memory that its queue pairs share. Any failure
/// ends the process.
class device {
 public:
  explicit device(std::size_t bytes);
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  ~device();

  ibv_context* context() const noexcept { return context_; }
  ibv_pd* domain() const noexcept { return domain_; }
  volatile char* memory() noexcept { return memory_.data(); }
  /// A part of the memory, as an element of a request.
  ibv_sge piece(std::size_t offset, std::size_t length) const noexcept;
  address address_of(const ibv_qp& pair) const noexcept;

 private:
  friend class queue_pair;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_mr* region_ = nullptr;
  std::vector<char> memory_;
  ibv_port_attr port_{};
  ibv_gid gid_{};
};

class completion_queue {
 public:
  completion_queue(const device& on, int entries);
  completion_queue(const completion_queue&) = delete;
  completion_queue& operator=(const completion_queue&) = delete;
  ~completion_queue() { ibv_destroy_cq(queue); }

  /// Polls up to `count` completions, and fails unless all of them are successful.
  int poll(ibv_wc* into, int count);
  /// Spins until there is a completion.
  ibv_wc wait();

  ibv_cq* queue;
};

/// A reliable connection. Receives may be posted before it is connected.
class queue_pair {
 public:
  queue_pair(const device& on, completion_queue& completions, std::uint32_t sends = 1,
             std::uint32_t receives = 1);
  queue_pair(const queue_pair&) = delete;
  queue_pair& operator=(const queue_pair&) = delete;
  ~queue_pair() { destroy(); }
  void destroy() noexcept;

  address here() const noexcept { return on_.address_of(*pair_); }
  void connect(const address& peer);
  /// Exchanges addresses with the process at the other end of a socket, and connects to its queue
  /// pair. Returns the peer's address.
  address meet(int socket);

  void write(const ibv_sge& piece, const address& to, unsigned flags = IBV_SEND_SIGNALED,
             std::uint64_t id = 0);
  void send(const ibv_sge& piece, unsigned flags = IBV_SEND_SIGNALED);
  void receive(const ibv_sge& piece, std::uint64_t id);

 private:
  void post(ibv_send_wr& request, const ibv_sge& piece, unsigned flags);

  const device& on_;
  ibv_qp* pair_ = nullptr;
};

}  // namespace bench
