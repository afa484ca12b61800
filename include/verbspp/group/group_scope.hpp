// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/suspends.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/scope.hpp>
#include <verbspp/group/detail/kept_peers.hpp>
#include <verbspp/group/group_error.hpp>
#include <verbspp/group/group_operations.hpp>
#include <verbspp/group/group_results.hpp>
#include <verbspp/group/peer_list.hpp>
#include <verbspp/work/operations.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace verbspp {

class group;

class manual_group_scope;

namespace detail {
template <class Scope>
concept TakesPartsOfPeers =
    because(!std::is_same_v<Scope, manual_group_scope>,
            "in a manual scope, every result has to be taken, but this function returns no "
            "handles: post to each peer separately, for example with scope[peer].post_write, or "
            "use group::scope");
}  // namespace detail

/// The object that `group::scope` passes to its function: it accepts requests for any peer. All
/// requests have finished when the scope returns.
///
/// `scope[peer]` is the scope of that peer's channel, which is opened on its first use. If a queue
/// is full, posting waits for room until the scope's limit is reached. In a world that connects
/// lazily, the first use also connects the peer. If connecting fails, `scope[peer]` refuses
/// requests as an empty channel does, and the next use tries to connect again. Requests for numbers
/// that were not below the group's size when the scope began are refused as well. The object is
/// valid only within the function, and can be neither copied nor moved. Thread rule: as for the
/// group.
class group_scope : public group_operations<group_scope> {
 public:
  /// Used by the library only.
  group_scope(const detail::owned<channel[]>& channels, const std::uint32_t& group_size,
              std::optional<channel_scope>* scopes, const wait_limit& limit,
              group* connects) noexcept
      : channels_(&channels),
        group_size_(&group_size),
        scopes_(scopes),
        size_(group_size),
        limit_(limit),
        connects_(connects) {}
  group_scope(const group_scope&) = delete;
  group_scope& operator=(const group_scope&) = delete;
  ~group_scope() = default;

  /// The scope of this peer's channel. It refuses requests if the number is not below the size that
  /// the group had when the scope began.
  [[nodiscard]] channel_scope& operator[](std::uint32_t peer) noexcept {
    if (peer >= size_) [[unlikely]]
      return refusing();
    std::optional<channel_scope>& opened = scopes_[peer];
    if (!opened) {
      if (connects_ != nullptr && !is_reached(peer)) [[unlikely]]
        return refusing();
      // Since the scope began, the group may have been moved from, or replaced by assignment.
      if (peer >= *group_size_) [[unlikely]]
        return refusing();
      opened.emplace(channels_->get()[peer].core(), limit_);
    }
    return *opened;
  }

  /// Used by the library only: waits for all requests. \returns the failure to report, if there
  /// is one; in a manual scope, results that were not retrieved count as failures
  [[nodiscard]] std::optional<group_error> failure(bool is_manual = false) noexcept;

 private:
  friend group_operations<group_scope>;

  template <class Function>
  [[nodiscard]] group_result<void> post_each(const peer_list& given, Function& part_for) {
    const detail::kept_peers kept(given);
    if (!kept.exists()) return no_memory();
    const peer_list peers = kept.list();
    std::optional<std::uint32_t> first;
    transport_error cause;
    std::uint32_t failed = 0;
    const auto note_failure = [&](std::uint32_t peer, const transport_error& why) {
      if (failed++ != 0) return;
      first = peer;
      cause = why;
    };
    const auto post_part = [&](std::uint32_t peer) {
      const result<void> posted = post_one(peer, part_for);
      if (!posted.has_value()) note_failure(peer, posted.assume_error());
    };
    const detail::owned<bool[]> is_due_at = due_places(peers);
    std::uint32_t place = 0;
    for (const std::uint32_t peer : peers)
      if (!is_due_at || !is_due_at.get()[place++]) post_part(peer);
    if (is_due_at) [[unlikely]] {
      const group_results reached = connect(peers);
      place = 0;
      for (const std::uint32_t peer : peers) {
        const std::uint32_t at = place++;
        if (!is_due_at.get()[at]) continue;
        if (const auto refused = why_not_reached(reached, at))
          note_failure(peer, *refused);
        else
          post_part(peer);
      }
    }
    if (first) return group_error(*first, cause, failed);
    return success();
  }
  template <class Function>
  [[nodiscard]] result<void> post_one(std::uint32_t peer, Function& part_for) {
    if (peer >= size_) return no_such_peer(peer);
    auto part = part_for(peer);
    if constexpr (detail::MayLackValue<decltype(part)>) {
      VERBSPP_TRY(operation, std::move(part));
      return post((*this)[peer], operation);
    } else {
      return post((*this)[peer], part);
    }
  }
  template <class Operation>
  [[nodiscard]] static result<void> post(channel_scope& to, const Operation& operation) noexcept {
    if constexpr (std::is_same_v<Operation, send_operation>) {
      VERBSPP_TRYV(to.post_send(operation));
    } else if constexpr (std::is_same_v<Operation, write_operation>) {
      VERBSPP_TRYV(to.post_write(operation));
    } else if constexpr (std::is_same_v<Operation, receive_operation>) {
      VERBSPP_TRYV(to.post_receive(operation));
    } else {
      VERBSPP_TRYV(to.post_read(operation));
    }
    return success();
  }
  [[nodiscard]] error no_such_peer(std::uint32_t peer) const noexcept;
  [[nodiscard]] static error no_memory() noexcept;
  /// Connects the peer if it still has to be connected. \returns false if that failed
  [[nodiscard]] bool is_reached(std::uint32_t peer) noexcept;
  /// Returns a scope without a channel, which refuses all requests. It stands in for a peer that
  /// does not exist, or could not be connected. In the latter case, the peer's own scope can't be
  /// used: its channel is only prepared, so it would accept receives and then wait for them.
  [[nodiscard]] channel_scope& refusing() noexcept;
  /// Like `group::due_places`, but also returns null if no peer has to be connected. If it returns
  /// null because memory is exhausted, each peer is connected when a request is posted to it.
  [[nodiscard]] detail::owned<bool[]> due_places(const peer_list& peers) const noexcept;
  [[nodiscard]] group_results connect(const peer_list& peers) noexcept;
  [[nodiscard]] std::optional<transport_error> why_not_reached(const group_results& reached,
                                                               std::uint32_t place) const noexcept;

  const detail::owned<channel[]>* channels_;  ///< the channels of the group
  const std::uint32_t* group_size_;
  std::optional<channel_scope>* scopes_;
  std::uint32_t size_;  ///< the group's size when the scope began
  wait_limit limit_;
  std::optional<channel_scope> refusing_{};
  group* connects_;  ///< null if the group does not connect peers on their first use
};

/// The object that `group::manual_scope` passes to its function. The function has to retrieve the
/// result of every request that it posts through `scope[peer]`, from the handle that posting
/// returned. The object has no `post_scatter`, `post_gather` or `post_multicast`, because these
/// functions return no handles. In all other respects, it behaves like a `group_scope`. A world's
/// barrier accepts either class.
class manual_group_scope final : public group_scope {
 public:
  using group_scope::group_scope;

  template <class Scope = manual_group_scope>
  void post_scatter(const peer_list&, ...)
    requires detail::TakesPartsOfPeers<Scope>;
  template <class Scope = manual_group_scope>
  void post_gather(const peer_list&, ...)
    requires detail::TakesPartsOfPeers<Scope>;
  template <class Scope = manual_group_scope>
  void post_multicast(const peer_list&, ...)
    requires detail::TakesPartsOfPeers<Scope>;
};

namespace detail {

/// Calls the function with the scope. Returns the function's result, or the failures of the
/// function and of the requests that were posted through the scope.
template <class Scope, class Function>
[[nodiscard]] auto run_in_group(Scope& scope, Function& function) {
  constexpr bool is_manual = std::is_same_v<Scope, manual_group_scope>;
  using returned = std::remove_cv_t<std::invoke_result_t<Function&, Scope&>>;
  static_assert(!Suspends<returned>,
                "a scope ends when its function returns, but a coroutine or an awaited call may "
                "continue after that: pass a function that is not a coroutine, and does not return "
                "an awaitable object");
  using value = value_within_t<returned>;
  using report = group_result<value>;
  if constexpr (std::is_void_v<returned>) {
    function(scope);
    if (const auto failure = scope.failure(is_manual)) return report(*failure);
    return report(success());
  } else {
    returned own = function(scope);
    std::optional<group_error> failure = scope.failure(is_manual);
    if constexpr (!std::is_same_v<returned, value>) {
      if (!own.has_value()) {
        group_error all = failure.value_or(group_error());
        all.add_own(own.assume_error());
        return report(all);
      }
    }
    if (failure) return report(*failure);
    if constexpr (std::is_void_v<value>)
      return report(success());
    else if constexpr (std::is_same_v<returned, value>)
      return report(std::in_place, std::move(own));
    else
      return report(std::in_place, std::move(own).assume_value());
  }
}

}  // namespace detail

}  // namespace verbspp
