// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/tcp_frame.hpp"
#include "ranks/values_of_ranks.hpp"
#include <verbspp/base/result.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// The place where the ranks of a world meet: a listener, and a thread that serves each client when
/// it is ready, without waiting for any particular one.
class [[gnu::visibility("hidden")]] meeting_point {
 public:
  meeting_point(tcp_listener listener, std::uint32_t size, std::string name);
  meeting_point(const meeting_point&) = delete;
  meeting_point& operator=(const meeting_point&) = delete;
  /// Waits until all ranks that have joined have left, or a time limit has expired.
  ~meeting_point();

 private:
  struct visitor {
    tcp_socket socket{};
    tcp_frames in{};
    std::vector<std::byte> out{};
    std::optional<std::uint32_t> rank{};
    std::uint32_t waits_at = 0;  ///< the number of the fence at which it waits, or 0
    std::chrono::steady_clock::time_point came{};
    bool is_leaving = false;  ///< is disconnected once all data has been sent
    bool is_gone = false;
  };

  using place = std::vector<visitor>::iterator;

  void serve();
  [[nodiscard]] std::optional<place> place_for_next();
  void admit();
  void read(visitor& from);
  void write(visitor& to);
  void take(visitor& from, const tcp_frame& frame);
  void greet(visitor& from, const tcp_frame& hello);
  void refuse(visitor& whom, tcp_refusal why);
  void look_at_fences();
  void remove_gone();

  tcp_listener listener_;
  std::string name_;
  values_of_ranks values_;
  std::vector<visitor> visitors_{};
  enum class presence : std::uint8_t { not_yet, here, left };
  std::vector<presence> presence_;
  std::vector<std::uint32_t> left_{};  ///< the ranks that have left, the first one first
  std::atomic<bool> is_ending_{false};
  std::thread thread_{};
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
