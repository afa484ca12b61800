// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "input.hpp"

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

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

  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_cq* queue = nullptr;
  ibv_mr* region = nullptr;

 private:
  device();

  std::span<std::byte> all_;
  std::span<std::byte> memory_;
  std::uint32_t slot_ = 0;
};

/// A queue pair of it that is connected to one of that number, which needn't be there.
class victim {
 public:
  victim(ibv_qp_type type, std::uint32_t peer, bool shares_receives);
  victim(const victim&) = delete;
  victim& operator=(const victim&) = delete;
  ~victim();

  void post_receive(std::size_t offset, std::uint32_t length);
  /// What can't be posted isn't.
  void post(ibv_wr_opcode what, const ibv_sge& piece, std::uint64_t remote, std::uint32_t rkey);
  /// Takes what has been completed: of what was posted, once.
  void poll();

  ibv_qp* pair = nullptr;
  static constexpr std::uint32_t psn = 100;
  static constexpr std::uint32_t peer_psn = 200;
  static constexpr std::uint32_t qkey = 0x11111111;

 private:
  ibv_qp_type type_;
  ibv_srq* shared_ = nullptr;
  unsigned posted_ = 0;
  unsigned receives_ = 0;
};

}  // namespace fuzz
