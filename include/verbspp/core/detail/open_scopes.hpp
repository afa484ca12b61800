// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/core/detail/request.hpp>
#include <verbspp/wait/call_limit.hpp>

#include <cstdint>

namespace verbspp::detail {

/// The state of a scope or stream, which records the requests for which it has to wait.
struct scope_state {
  call_limit limit = call_limit::of_channel();
  scope_state* outer = nullptr;  ///< the open scope that was opened last before this one
  // A run is a sequence of requests of this scope with consecutive numbers in the send queue.
  // `run_first` and `sends_end` describe the last run.
  std::uint64_t run_first = 0;
  std::uint64_t sends_end = 0;  ///< one more than the number of the last request
  std::uint32_t serial = 0;     ///< identifies the scope in its channel; 0: never opened
  std::uint32_t receives = 0;   ///< outstanding receives
  std::uint32_t posted = 0;     ///< requests with a handle
  std::uint32_t taken = 0;      ///< requests whose handle has taken the result
  // Counts of failed requests whose results no handle has taken.
  std::uint32_t failed = 0;   ///< requests that failed by themselves; 1 if the channel is empty
  std::uint32_t flushed = 0;  ///< requests that were flushed because of another failure
  bool is_stream = false;
  bool has_reads = false;  ///< an RDMA read was posted in the stream

  /// The number of handles that have not taken their results.
  [[nodiscard]] std::uint32_t left() const noexcept {
    // A handle of a much older scope with the same serial may have been counted in `taken`.
    return posted > taken ? posted - taken : 0;
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool has_sends() const noexcept { return sends_end != run_first; }
};

/// The open scopes of a channel, as a list that starts with the innermost scope, the one that was
/// opened last. The list does not own the scopes.
class open_scopes {
 public:
  [[nodiscard]] VERBSPP_DATA_PATH scope_state* innermost() const noexcept { return innermost_; }

  /// \param next_send the number that the next request to the send queue will have
  VERBSPP_DATA_PATH void open(scope_state& scope, std::uint64_t next_send) noexcept {
    serials_ = (serials_ + 1) % scope_serials;
    if (serials_ == 0) [[unlikely]]
      serials_ = 1;
    scope.serial = serials_;
    scope.outer = innermost_;
    innermost_ = &scope;
    scope.run_first = scope.sends_end = next_send;
  }
  VERBSPP_DATA_PATH void close(const scope_state& scope) noexcept {
    if (innermost_ == &scope) [[likely]]
      innermost_ = scope.outer;
    else
      close_outer(scope);
  }
  /// The open scope in which the request was posted; null if that scope is closed, or the request
  /// was posted outside of scopes.
  [[nodiscard]] scope_state* of(const request& one) const noexcept {
    scope_state* scope = one.scope != 0 ? innermost_ : nullptr;
    while (scope != nullptr && scope->serial != one.scope) scope = scope->outer;
    return scope;
  }

  [[nodiscard]] std::uint32_t count() const noexcept {
    std::uint32_t open = 0;
    for (const scope_state* each = innermost_; each != nullptr; each = each->outer) ++open;
    return open;
  }

 private:
  void close_outer(const scope_state& scope) noexcept {
    for (scope_state** inner = &innermost_; *inner != nullptr; inner = &(*inner)->outer)
      if (*inner == &scope) {
        *inner = scope.outer;
        return;
      }
  }

  scope_state* innermost_ = nullptr;
  std::uint32_t serials_ = 0;
};

}  // namespace verbspp::detail
