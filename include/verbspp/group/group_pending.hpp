// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/peer_list.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace verbspp {

/// Requests on their way to or from several peers: what posting to a group gives.
///
/// What could not be posted to one peer is that peer's result; the others' requests are on their
/// way. The results are taken once, by `poll` or `wait`. Dropping it waits for each request, as a
/// `pending` does; it may outlive its group. A move-only owner of two arrays. Thread rule: as its
/// group.
class [[nodiscard]] group_pending {
 public:
  group_pending(const group_pending&) = delete;
  group_pending& operator=(const group_pending&) = delete;
  group_pending(group_pending&& other) noexcept
      : handles_(std::move(other.handles_)),
        results_(std::move(other.results_)),
        size_(std::exchange(other.size_, 0)),
        first_(std::exchange(other.first_, 0)),
        usual_limit_(other.usual_limit_) {}
  group_pending& operator=(group_pending&& other) noexcept {
    handles_ = std::move(other.handles_);
    results_ = std::move(other.results_);
    size_ = std::exchange(other.size_, 0);
    first_ = std::exchange(other.first_, 0);
    usual_limit_ = other.usual_limit_;
    return *this;
  }
  ~group_pending() = default;

  /// The results, if all are there; never blocks, and looks at one channel unless that has news.
  /// \errors of each request by its peer; `invalid_input` if they were taken already
  [[nodiscard]] std::optional<group_results> poll() noexcept;
  /// The results, waited for: one limit for all. The connections of the peers that are late then
  /// are given up, each with all of its requests; those of the others are as before.
  /// \errors as `poll`; `timed_out`, or that a stop was requested
  group_results wait() noexcept { return wait(wait_limit(usual_limit_)); }
  group_results wait(const wait_limit& limit) noexcept;

  /// For how many peers.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

  /// For the library: room for that many peers.
  [[nodiscard]] static result<group_pending> reserve(const peer_list& peers,
                                                     std::uint32_t end) noexcept;
  /// For the library.
  [[nodiscard]] std::uint32_t peer(std::uint32_t place) const noexcept {
    return results_.get()[place].peer;
  }
  /// For the library.
  void set_usual_limit(std::chrono::nanoseconds length) noexcept { usual_limit_ = length; }
  /// For the library: the request of that place was posted.
  void begin(std::uint32_t place, detail::channel_core& core,
             const detail::request& posted) noexcept {
    handles_.get()[place] = pending<>(&core, posted);
  }
  /// For the library: it could not be.
  void fail(std::uint32_t place, const transport_error& cause) noexcept {
    results_.get()[place].result = cause;
  }

 private:
  group_pending() noexcept = default;
  [[nodiscard]] group_results finish() noexcept;

  detail::owned<pending<>[]> handles_{};
  detail::owned<peer_result[]> results_{};
  std::uint32_t size_ = 0;
  std::uint32_t first_ = 0;  ///< all before it have finished
  std::chrono::nanoseconds usual_limit_{};
};

}  // namespace verbspp
