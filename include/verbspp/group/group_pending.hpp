// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/peer_list.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace verbspp {

/// A handle to the requests that were posted to several peers, as returned by the functions that
/// post to a group.
///
/// If a request could not be posted, the error is that peer's result, and the other requests are
/// not affected. The results can be retrieved only once, with `poll` or `wait`. Destroying the
/// handle destroys a `pending` for each request, and waits as the destructor of a `pending` does.
/// The handle may outlive its group. A move-only owner. Thread rule: as for the group.
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

  /// Returns the results if all requests have finished; does not wait for them. Each call polls the
  /// channels in order, up to the first whose request has not finished.
  /// \errors for each peer, those of posting and of its request; `invalid_input` if the results
  /// were already retrieved, or the handle was moved from
  [[nodiscard]] std::optional<group_results> poll() noexcept;
  /// Waits for all results, with one limit. When the limit is reached, the channels whose requests
  /// have not finished break, which ends all of their requests. Other channels are not affected.
  /// \errors those of `poll`; for each peer, those of `pending::wait`
  group_results wait() noexcept { return wait(wait_limit(usual_limit_)); }
  group_results wait(const wait_limit& limit) noexcept;

  /// The number of listed peers; 0 if the handle has no results.
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

  /// Used by the library only: creates a handle with room for the requests to these peers, whose
  /// numbers have to be below `end`.
  [[nodiscard]] static result<group_pending> reserve(const peer_list& peers,
                                                     std::uint32_t end) noexcept;
  /// Used by the library only.
  [[nodiscard]] std::uint32_t peer(std::uint32_t place) const noexcept {
    return results_.get()[place].peer;
  }
  /// Used by the library only.
  void set_usual_limit(std::chrono::nanoseconds length) noexcept { usual_limit_ = length; }
  /// Used by the library only: records that the request at `place` was posted.
  void begin(std::uint32_t place, detail::channel_core& core,
             const detail::request& posted) noexcept {
    handles_.get()[place] = pending<>(&core, posted);
  }
  /// Used by the library only: records that the request at `place` could not be posted.
  void fail(std::uint32_t place, const transport_error& cause) noexcept {
    results_.get()[place].result = cause;
  }

 private:
  group_pending() noexcept = default;
  [[nodiscard]] group_results finish() noexcept;

  detail::owned<pending<>[]> handles_{};
  detail::owned<peer_result[]> results_{};
  std::uint32_t size_ = 0;
  std::uint32_t first_ = 0;  ///< the first request that may not have finished
  std::chrono::nanoseconds usual_limit_{};
};

}  // namespace verbspp
