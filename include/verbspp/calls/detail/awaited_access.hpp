// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited_work.hpp>
#include <verbspp/async/detail/resumable.hpp>
#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/detail/number_of.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/calls/detail/lanes.hpp>
#include <verbspp/calls/detail/service_core.hpp>
#include <verbspp/calls/service.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/channel/posting_operations.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/work/operation_traits.hpp>
#include <verbspp/work/work_completion.hpp>

#include <coroutine>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp::detail {

/// The awaitable of `received_call::async_read` and `async_write`: a request on a lane. A thread of
/// the service polls the lane, and resumes the coroutine after it has released the lane's lock.
template <class Operation, class Memory>
class [[nodiscard]] awaited_access : serving_lane::waiting_access, resumable {
  static constexpr bool is_shared = SharedMemory<Memory>;
  using request = awaited_work<Operation, std::conditional_t<is_shared, void, Memory>>;

 public:
  using outcome = std::conditional_t<is_shared, result<void>, finished<Memory>>;

  /// \param limit null stands for the default limit of the client's channel
  template <class Source>
  awaited_access(open_call& call, std::uint64_t offset, const wait_limit* limit,
                 Source&& memory) noexcept
      : resumable([](resumable& self) noexcept {
          auto& mine = static_cast<awaited_access&>(self);
          mine.lane_->note_finished(mine);
        }) {
    begin(call, offset, limit, std::forward<Source>(memory));
  }
  awaited_access(const awaited_access&) = delete;
  awaited_access& operator=(const awaited_access&) = delete;
  /// A request in flight continues, and keeps its memory alive. The destructor waits for the
  /// request only if memory is exhausted.
  ~awaited_access() {
    if (!lane_) return;
    {
      const brief_guard guard(lane_->lock());
      unlink();
      std::destroy_at(std::addressof(request_));
      lane_->close_access();
    }
    // The destructor of the request may have collected completions of other accesses.
    if (!was_taken_) client_->poll_later(lane_);
  }

  [[nodiscard]] bool await_ready() const noexcept { return at_once_.has_value(); }
  // Not inlined, because after `request_.await_suspend`, another thread may resume and destroy the
  // coroutine, in whose frame the compiler could keep variables of this function.
  [[nodiscard, gnu::noinline]] bool await_suspend(std::coroutine_handle<> to_resume) noexcept {
    const reference<serving_lane> lane = lane_;
    const brief_guard guard(lane->lock());
    waiting = to_resume.address();
    return request_.await_suspend(handle());
  }
  [[nodiscard]] outcome await_resume() noexcept {
    if (at_once_) return *std::move(at_once_);
    was_taken_ = true;
    const brief_guard guard(lane_->lock());
    auto done = request_.await_resume();
    if constexpr (is_shared) {
      if (done.has_value()) return success();
      return error(explained(done).assume_error());
    } else {
      if (!done.result.has_value()) done.result = explained(done.result);
      return done;
    }
  }

 private:
  /// Returns the failure of an access or, if the client has left, the cause of that failure.
  [[nodiscard]] transport_result<completed_work> explained(
      const transport_result<completed_work>& failed) noexcept {
    if (!lane_->has_ended() || channel_core::is_lost(failed.assume_error())) return failed;
    return *lane_->core().root_of_failure();
  }

  static constexpr const char* name =
      fills<Operation> ? "received_call::async_read" : "received_call::async_write";

  [[nodiscard]] static auto nowhere() noexcept {
    constexpr auto right = fills<Operation> ? access::remote_read : access::remote_write;
    return remote_memory<right>(0, 0, remote_key(std::uint32_t{0}));
  }
  template <class Source>
  void begin(open_call& call, std::uint64_t offset, const wait_limit* limit,
             Source&& memory) noexcept {
    const auto all = element_for<fills<Operation>>(memory);
    if (all.has_error()) return end(all.assume_error(), memory);
    Operation operation = {.elements = all.assume_value(), .remote = nowhere()};
    const auto place = call.begin(name, operation.elements, offset);
    if (place.has_error()) return end(place.assume_error(), memory);
    if (!place.assume_value())
      return end(completed_work(number_of(operation_traits<Operation>::completes_as),
                                all.assume_value().length(), 0, 0),
                 memory);
    operation.remote = *place.assume_value();
    const reference<serving_lane> lane = call.lane();
    {
      const brief_guard guard(lane->lock());
      if (const result<void> opened = lane->open_access(); opened.has_error())
        return end(opened.assume_error(), memory);
      ::new (static_cast<void*>(std::addressof(request_)))
          request(request::of(lane->core(), limit, operation, std::forward<Source>(memory)));
    }
    lane_ = lane;
    client_ = call.caller();
    client_->poll_later(lane_);
  }
  void end(const transport_result<completed_work>& done, [[maybe_unused]] auto& memory) noexcept {
    if constexpr (!is_shared) {
      if constexpr (fills<Operation>) note_filling(memory, done);
      at_once_.emplace(finished<Memory>{done, std::move(memory)});
    } else if (done.has_value()) {
      at_once_.emplace(success());
    } else {
      at_once_.emplace(error(done.assume_error()));
    }
  }

  std::optional<outcome> at_once_{};  ///< the result if the device accesses no memory
  reference<serving_lane> lane_{};    ///< empty if `at_once_` has the result
  reference<calling_client> client_{};
  bool was_taken_ = false;
  union {
    request request_;
  };
};

}  // namespace verbspp::detail
