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

/// A device, once for all, and memory of which one part is registered: nothing else of it may ever
/// change, and nothing behind it is there.
class device {
 public:
  static device& only();

  /// Same for all: the registered part begins as some numbers, the rest as others.
  void begin();
  /// The same; from here on only steps make progress, and all goes as packets.
  void begin_steps(std::uint64_t seed);
  /// What isn't registered has not changed.
  void check() const;
  /// What was made in between is served, or has failed, as far as so many steps go.
  static void run(unsigned steps);

  std::span<std::byte> memory() const noexcept { return memory_; }
  std::uint32_t slot() const noexcept;
  ibv_sge piece(std::size_t offset, std::uint32_t length) const noexcept;
  /// The device's own end of a connection.
  ibv_ah_attr way_here() const;
  /// What queue pairs join that aren't connected, of that type.
  static ibv_gid group(ibv_qp_type type) noexcept;
  /// Not all users may make raw packet queue pairs.
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

/// A queue pair of it that is connected to one of that number, which needn't be there; and what
/// belongs to it.
class victim {
 public:
  /// Of XRC, receives are always shared.
  victim(ibv_qp_type type, std::uint32_t peer, bool shares_receives);
  victim(const victim&) = delete;
  victim& operator=(const victim&) = delete;
  ~victim();

  /// Of XRC, to one of two shared queues.
  void post_receive(std::size_t offset, std::uint32_t length, unsigned which = 0);
  /// The number of one of these.
  std::uint32_t shared_number(unsigned which) const noexcept;
  /// One of these is another one from here on.
  void renew_shared(unsigned which);
  /// Through a window, peers see a part of what is registered from here on.
  void bind_window();
  std::uint32_t window_key() const noexcept { return window_key_; }
  /// One more rule by which a raw packet queue pair gets frames; it may make no sense.
  void add_rule(ibv_flow_attr& attributes);
  /// What can't be posted isn't.
  void post(ibv_wr_opcode what, const ibv_sge& piece, std::uint64_t remote, std::uint32_t rkey);
  /// Takes what has been completed: of what was posted, once.
  void poll();

  ibv_qp* pair = nullptr;
  static constexpr std::uint32_t psn = 100;
  static constexpr std::uint32_t peer_psn = 200;
  static constexpr std::uint32_t qkey = 0x11111111;
  // What the window shows of the registered memory.
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
