// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "input.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fuzz {

/// The only device, and its memory. A part of the memory is registered, and the pages before and
/// after that part must never change. There are inaccessible pages before and after all of these
/// pages.
class device {
 public:
  static device& only();

  /// Called for each input, so that all inputs start with the same memory. Fills the registered
  /// memory with one value, and the pages before and after it with another.
  void begin();
  /// Does the same as `begin`, and also suspends the device. From then on, the device runs only in
  /// single steps, and sends all requests as packets.
  void begin_steps(std::uint64_t seed);
  /// Checks that the memory outside the registered region has not changed.
  void check() const;
  /// Lets the device execute up to `steps` steps, so that pending work completes or fails.
  static void run(unsigned steps);

  std::span<std::byte> memory() const noexcept { return memory_; }
  std::uint32_t slot() const noexcept;
  ibv_sge piece(std::size_t offset, std::uint32_t length) const noexcept;
  /// Returns the device's own address, for connections to itself.
  ibv_ah_attr way_here() const;
  /// Returns the multicast group that unconnected queue pairs of this type join.
  static ibv_gid group(ibv_qp_type type) noexcept;
  /// Returns false if raw packet queue pairs can't be created.
  bool may_send_frames() const noexcept { return may_send_frames_; }

  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_cq* queue = nullptr;
  ibv_mr* region = nullptr;
  ibv_xrcd* shared_receives = nullptr;

 private:
  device();

  std::span<std::byte> all_;
  std::span<std::byte> memory_;
  std::uint32_t slot_ = 0;
  bool may_send_frames_ = false;
};

/// A queue pair on the device, with shared receive queues, a window and flow rules of its own. It
/// uses the domain, the completion queue and the region of the device. If queue pairs of its type
/// must be connected, it is connected to the queue pair with the number `peer`, which may not
/// exist. Calls that don't suit its type do nothing.
class victim {
 public:
  /// With XRC, receives are shared even if `shares_receives` is false.
  victim(ibv_qp_type type, std::uint32_t peer, bool shares_receives);
  victim(const victim&) = delete;
  victim& operator=(const victim&) = delete;
  ~victim();

  /// Posts a receive. With XRC, `which` selects one of the two shared receive queues.
  void post_receive(std::size_t offset, std::uint32_t length, unsigned which = 0);
  /// Returns the number of a shared receive queue, or 0 unless the type is IBV_QPT_XRC_RECV.
  std::uint32_t shared_number(unsigned which) const noexcept;
  /// Replaces a shared receive queue with a new one.
  void renew_shared(unsigned which);
  /// Binds a window, through which peers can access a part of the registered memory.
  void bind_window();
  std::uint32_t window_key() const noexcept { return window_key_; }
  /// Adds a rule that selects which frames a raw packet queue pair receives. The rule may be
  /// invalid.
  void add_rule(ibv_flow_attr& attributes);
  /// Posts a request. Does nothing if the request can't be posted.
  void post(ibv_wr_opcode what, const ibv_sge& piece, std::uint64_t remote, std::uint32_t rkey);
  /// Polls the completions, and checks that no more requests complete than were posted.
  void poll();

  ibv_qp* pair = nullptr;
  static constexpr std::uint32_t psn = 100;
  static constexpr std::uint32_t peer_psn = 200;
  static constexpr std::uint32_t qkey = 0x11111111;
  // The window covers this part of the registered memory.
  static constexpr std::size_t window_start = 1024;
  static constexpr std::size_t window_length = 2048;

 private:
  void make_pair(bool shares_receives);
  void connect(std::uint32_t peer);
  bool is_raw() const noexcept { return type_ == IBV_QPT_RAW_PACKET; }
  bool is_connected() const noexcept { return !is_raw() && type_ != IBV_QPT_UD; }
  void submit(ibv_send_wr& request);

  ibv_qp_type type_;
  std::array<ibv_srq*, 2> shared_{};
  ibv_mw* window_ = nullptr;
  std::uint32_t window_key_ = 0;
  std::vector<ibv_flow*> rules_;
  unsigned posted_ = 0;
  unsigned receives_ = 0;
};

}  // namespace fuzz
