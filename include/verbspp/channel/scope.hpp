// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/outcome.hpp>
#include <verbspp/base/detail/suspends.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/channel/scope_error.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/memory/memory_window.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/work/batch.hpp>
#include <verbspp/work/operations.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

/// The object that `channel_scope::post_batch` passes to its function. It accepts the operations
/// that a scope offers for the send queue, except atomic writes and flushes. Their memory has to be
/// given as elements. The requests are posted together when the function returns. The array of
/// elements and the inline bytes of an operation have to stay valid only until the call that adds
/// the operation returns.
template <std::size_t Requests, class List>
class channel_batch : public send_queue_operations<channel_batch<Requests, List>, transport::rc,
                                                   queue_pair_state::ready_to_send,
                                                   posting_interface::standard, channel_tag> {
 public:
  /// Used by the library only.
  VERBSPP_DATA_PATH channel_batch(detail::channel_core& core, List& list) noexcept
      : core_(core), list_(list), first_(core.sends().next()) {}
  channel_batch(const channel_batch&) = delete;
  channel_batch& operator=(const channel_batch&) = delete;
  ~channel_batch() = default;

  /// Used by the library only: refuses the batch if something else was posted to the send queue
  /// while the batch was being filled, because the batch's requests have been numbered already.
  VERBSPP_DATA_PATH void check_first() noexcept {
    if (core_.sends().next() != first_) [[unlikely]]
      list_.refuse(detail::channel_core::posted_within_batch());
  }
  /// Used by the library only.
  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(list_.next_place());
  }

 private:
  friend send_queue_operations<channel_batch, transport::rc, queue_pair_state::ready_to_send,
                               posting_interface::standard, channel_tag>;

  template <class Operation>
  VERBSPP_DATA_PATH void submit(const Operation& operation, channel_tag /*tag*/) noexcept {
    using traits = operation_traits<Operation>;
    if (const auto objection = core_.objection(operation)) [[unlikely]]
      return list_.refuse(*objection);
    const std::uint64_t number = first_ + list_.next_place();
    list_.add(traits::elements(operation), [&](ibv_send_wr& native) {
      detail::fill(native, operation, {.id = detail::wr_id_of(traits::completes_as, number)});
    });
  }

  detail::channel_core& core_;
  List& list_;
  std::uint64_t first_;  ///< the number of the batch's first request
};

namespace detail {

/// The common part of scopes and streams, which waits for their requests at the end.
class scope_base {
 public:
  VERBSPP_DATA_PATH scope_base(channel_core& core, call_limit limit) noexcept : core_(core) {
    state_.limit = limit;
    core_.open_scope(state_);
  }
  scope_base(const scope_base&) = delete;
  scope_base& operator=(const scope_base&) = delete;
  VERBSPP_DATA_PATH ~scope_base() {
    // Waits only if the program's function has thrown, or an `async_scope` or `async_stream` is
    // destroyed before its requests have finished.
    static_cast<void>(finish());
    core_.close_scope(state_);
  }

  /// Used by the library only: true if all requests have finished; does not wait for them.
  [[nodiscard]] bool has_finished() noexcept {
    if (!core_.has_finished(state_)) core_.collect();
    return core_.has_finished(state_);
  }
  /// Waits for all requests. \returns the error if that wait has failed; otherwise empty
  VERBSPP_DATA_PATH std::optional<error> finish() noexcept {
    std::optional<error> ended;
    if (!core_.has_finished(state_)) {
      core_.collect();
      if (!core_.has_finished(state_)) [[unlikely]]
        ended = core_.wait_for_all(state_);
    }
    return ended;
  }
  /// Waits for all requests. \returns the failures to report if the program's function has
  /// succeeded; empty if there are none
  [[nodiscard]] VERBSPP_DATA_PATH std::optional<scope_error> failure(bool is_manual) noexcept {
    const std::optional<error> ended = finish();
    const std::uint32_t left = is_manual ? state_.left() : 0;
    if (!ended && (state_.failed | state_.flushed | left) == 0) [[likely]]
      return std::nullopt;
    return describe(ended, left);
  }
  /// Like `failure`, if the program's function has returned an error.
  [[nodiscard]] scope_error failure_besides(const error& own, bool is_manual) noexcept {
    scope_error all = failure(is_manual).value_or(scope_error());
    all.add_own(own);
    return all;
  }

 protected:
  [[nodiscard]] VERBSPP_DATA_PATH channel_core& core() const noexcept { return core_; }
  /// With these terms, posting waits for room if a queue is full.
  [[nodiscard]] VERBSPP_DATA_PATH posting_terms terms() noexcept {
    return {.scope = &state_, .waits_for_room = true};
  }

  channel_core& core_;
  scope_state state_{};

 private:
  [[nodiscard]] scope_error describe(const std::optional<error>& ended,
                                     std::uint32_t left) const noexcept;
};

}  // namespace detail

/// The object that `channel::scope` passes to its function: it accepts requests, which have all
/// finished when `channel::scope` returns.
///
/// Posting returns a handle, which need not be kept: the scope reports the failures of requests
/// whose results were not taken. If a handle owns the memory, dropping it waits for the request. If
/// a queue is full, posting waits for room, until the limit of the scope. The object is valid only
/// within the function, and can be neither copied nor moved. Thread rule: as for the channel.
class channel_scope : public detail::scope_base, public posting_operations<channel_scope> {
 public:
  using scope_base::scope_base;

  /// Posts up to `Requests` requests with one doorbell. Calls `fill` with a `channel_batch&`, to
  /// which `fill` adds the requests. If the queue has no room for all of them, this function waits
  /// for room, at most until the scope's limit is reached.
  /// \errors as for single requests, with the number of requests that were posted; `invalid_input`
  /// for more requests, elements or inline bytes than the storage can hold, or for more requests
  /// than the send queue can hold; `busy` if `fill` has posted to the send queue by other means
  template <std::size_t Requests, std::size_t Elements = Requests,
            std::size_t InlineBytes = detail::usual_inline_bytes<Requests>, class Fill>
  [[nodiscard]] VERBSPP_DATA_PATH batch_result post_batch(Fill fill) {
    detail::list_storage<ibv_send_wr, Requests, Elements, InlineBytes> storage;
    detail::listed_posting list(storage);
    channel_batch<Requests, decltype(list)> batch(core_, list);
    fill(batch);
    batch.check_first();
    if (core_.watches()) [[unlikely]]
      core_.note_batch_memory(storage.requests, batch.size());
    if (batch.size() > core_.sends().room() && !list.is_refused()) [[unlikely]] {
      const result<void> waited = make_room_for_batch(batch.size());
      if (!waited.has_value()) return batch_error(waited.assume_error(), 0);
    }
    const batch_result posted =
        list.post("ibv_post_send (batch)", core_.connection().capacities(),
                  [this](auto* first, auto* rejected) __attribute__((always_inline)) {
                    return ibv_post_send(core_.connection().native(), first, rejected);
                  });
    core_.commit_batch(posted.has_value()
                           ? batch.size()
                           : static_cast<std::uint32_t>(posted.assume_error().accepted()),
                       state_);
    return posted;
  }

 private:
  friend posting_operations<channel_scope>;
  using borrowing_handle = scoped_pending;
  using keeping_handle = scoped_pending;

  [[nodiscard]] result<void> make_room_for_batch(std::uint32_t wanted) noexcept;
};

/// The options of a stream.
struct stream_options {
  /// A stream signals all its requests except RDMA writes and reads, of which it signals only one
  /// out of every `signal_every` requests. Limited to the range from 1 to half the length of the
  /// send queue, rounded up.
  std::uint32_t signal_every = 16;
};

/// A scope that posts requests without handles. It signals only one out of every
/// `stream_options::signal_every` RDMA writes and reads, and all other requests. If a queue is
/// full, posting waits for room if `Waits` is true, until the limit of the scope, and fails
/// otherwise.
template <bool Waits>
class basic_stream : public detail::scope_base, public channel_operations<basic_stream<Waits>> {
 public:
  /// Used by the library only.
  VERBSPP_DATA_PATH basic_stream(detail::channel_core& core, call_limit limit,
                                 const stream_options& options) noexcept
      : scope_base(core, limit),
        most_unsignaled_(
            std::clamp(options.signal_every, 1U, std::max(core.sends().longest_unsignaled(), 1U)) -
            1) {
    core_.open_stream(state_);
  }

 private:
  friend send_queue_operations<basic_stream, transport::rc, queue_pair_state::ready_to_send,
                               posting_interface::extended, channel_tag>;
  friend receive_queue_operations<basic_stream, queue_pair_state::ready_to_send,
                                  receive_queue_kind::own, channel_tag>;

  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH result<void> submit(const Operation& operation,
                                                      channel_tag /*tag*/) noexcept {
    detail::request made;
    detail::posting_terms terms{.scope = &state_, .waits_for_room = Waits, .has_handle = false};
    if constexpr (std::is_same_v<Operation, receive_operation>) {
      return core_.post(operation, made, terms);
    } else {
      // If unsignaled requests are the last ones, `mark_end` posts a write or a read after them. A
      // peer that allows writes or reads of this stream allows that request as well.
      constexpr work_operation kind = operation_traits<Operation>::completes_as;
      if constexpr (kind == work_operation::rdma_write || kind == work_operation::rdma_read)
        terms.is_signaled = core_.sends().may_have_unsignaled(most_unsignaled_);
      const result<void> posted = core_.post(operation, made, terms);
      if (!posted.has_value()) [[unlikely]]
        return posted;
      if (terms.is_signaled) core_.sends().note_signaled();
      if constexpr (kind == work_operation::rdma_read) state_.has_reads = true;
      return posted;
    }
  }

  std::uint64_t most_unsignaled_;  ///< the largest number of consecutive unsignaled requests
};

/// The object that `channel::stream` passes to its function: it accepts requests without handles,
/// which have all finished when `channel::stream` returns. A loop that only posts keeps the queue
/// filled, because posting waits for room. The object is valid only within the function, and can be
/// neither copied nor moved. Thread rule: as for the channel.
using channel_stream = basic_stream<true>;

namespace detail {

/// Calls the function with the scope. Returns the function's result, or the failures of the
/// function and of the scope's requests.
template <class Scope, class Function>
[[nodiscard]] VERBSPP_DATA_PATH auto run(Scope& scope, Function& function, bool is_manual) {
  using returned = std::remove_cv_t<std::invoke_result_t<Function&, Scope&>>;
  static_assert(!Suspends<returned>,
                "a scope or stream ends when its function returns, but a coroutine or an awaited "
                "call may continue after that: pass a function that is not a coroutine, and does "
                "not return an awaitable object");
  using value = value_within_t<returned>;
  using report = scope_result<value>;
  if constexpr (std::is_void_v<returned>) {
    function(scope);
    if (const auto failure = scope.failure(is_manual)) [[unlikely]]
      return report(*failure);
    return report(success());
  } else {
    returned own = function(scope);
    if constexpr (std::is_same_v<returned, value>) {
      if (const auto failure = scope.failure(is_manual)) [[unlikely]]
        return report(*failure);
      return report(std::in_place, std::move(own));
    } else {
      if (!own.has_value()) [[unlikely]]
        return report(scope.failure_besides(own.assume_error(), is_manual));
      if (const auto failure = scope.failure(is_manual)) [[unlikely]]
        return report(*failure);
      if constexpr (std::is_void_v<value>)
        return report(success());
      else
        return report(std::in_place, std::move(own).assume_value());
    }
  }
}

}  // namespace detail

}  // namespace verbspp
