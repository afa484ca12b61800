// SPDX-License-Identifier: Apache-2.0
/// \file
/// Code that the tests of worlds share. The ranks are threads in one process.
#pragma once

#include "../device/device.hpp"
#include <verbspp/ranks.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace verbspp::test {

/// Calls the function on `count` threads, each with a different rank number. Rethrows the exception
/// of the lowest rank that has thrown one.
inline void on_threads(std::uint32_t count, const std::function<void(std::uint32_t)>& function) {
  std::vector<std::exception_ptr> thrown(count);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      try {
        function(rank);
      } catch (...) {
        thrown[rank] = std::current_exception();
      }
    });
  for (std::thread& each : threads) each.join();
  for (const std::exception_ptr& each : thrown)
    if (each) std::rethrow_exception(each);
}

/// Calls `function` while another thread calls `serve` repeatedly.
inline void while_served(const std::function<void()>& serve,
                         const std::function<void()>& function) {
  std::atomic<bool> is_done{false};
  on_threads(2, [&](std::uint32_t which) {
    if (which == 1) {
      while (!is_done) serve();
      return;
    }
    const struct at_end {
      std::atomic<bool>& is_reached;
      ~at_end() { is_reached = true; }
    } end{is_done};
    function();
  });
}

/// A world with `count` ranks in one process. All ranks use the same testbed.
struct local_worlds {
  explicit local_worlds(std::uint32_t count, std::uint32_t inline_bytes = 0,
                        std::uint32_t sends = 16, wait_mode waiting = wait_mode::spin()) {
    std::vector<local_bootstrap> launched = local_bootstrap::create(count);
    std::vector<std::optional<world>> made(count);
    on_threads(count, [&](std::uint32_t rank) {
      made[rank].emplace(
          must(world::join(std::move(launched[rank]),
                           bed.domain.build_channel()
                               .max_inline_data(must(inline_size::from(inline_bytes)))
                               .max_send_work_requests(must(work_request_count::from(sends)))
                               .waiting(waiting),
                           patience)));
    });
    for (auto& each : made) ranks.push_back(std::move(*each));
  }

  testbed bed;
  std::vector<world> ranks{};
};

/// A bootstrap that passes all calls to another bootstrap. Tests derive from it, and replace a
/// function.
struct passing_bootstrap {
  local_bootstrap of;
  [[nodiscard]] std::uint32_t rank() const { return of.rank(); }
  [[nodiscard]] std::uint32_t size() const { return of.size(); }
  result<void> put(std::string_view key, std::span<const std::byte> value) {
    return of.put(key, value);
  }
  group_result<void> fence(const wait_limit& limit) { return of.fence(limit); }
  result<std::size_t> get(std::uint32_t from, std::string_view key, std::span<std::byte> into,
                          const wait_limit& limit) {
    return of.get(from, key, into, limit);
  }
};

/// A world with `count` ranks in one process. The ranks are not yet connected to each other.
struct lazy_worlds {
  explicit lazy_worlds(std::uint32_t count) {
    std::vector<local_bootstrap> launched = local_bootstrap::create(count);
    std::vector<std::optional<world>> made(count);
    on_threads(count, [&](std::uint32_t rank) {
      made[rank].emplace(must(
          world::join_lazily(std::move(launched[rank]), bed.domain.build_channel(), patience)));
    });
    for (auto& each : made) ranks.push_back(std::move(*each));
  }

  testbed bed;
  std::vector<world> ranks{};
};

/// A stop token that requests a stop once the flag is set.
class when_set {
 public:
  explicit when_set(const std::atomic<bool>& flag) : flag_(&flag) {}
  [[nodiscard]] bool stop_requested() const noexcept { return *flag_; }

 private:
  const std::atomic<bool>* flag_;
};

/// Returns the ranks whose results are errors.
[[nodiscard]] inline std::vector<std::uint32_t> blamed(const group_results& results) {
  std::vector<std::uint32_t> found;
  for (const peer_result& each : results)
    if (!each.result.has_value()) found.push_back(each.peer);
  return found;
}

[[nodiscard]] inline error_kind kind_of(const group_results& failed) {
  return static_cast<error>(failed.error()).kind();
}
[[nodiscard]] inline error_kind kind_of(const peer_result& failed) {
  return static_cast<error>(failed.result.assume_error()).kind();
}

/// Breaks the connection between two ranks at both ends.
inline void break_link(world& one, world& other) {
  move_to_error(one.peers()[other.rank()].native_handle());
  static_cast<void>(other.peers()[one.rank()].close());
}

/// Throws a failure if the condition does not hold. May be called on any thread.
inline void require(bool holds, const char* what, int line = __builtin_LINE(),
                    const char* file = __builtin_FILE()) {
  if (!holds) throw failure(file, line, what);
}

}  // namespace verbspp::test
