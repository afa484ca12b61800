// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/async/detail/awaited.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/calls/caller.hpp>
#include <verbspp/calls/detail/caller_core.hpp>

#include <coroutine>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {

/// The awaitable of `caller::async_call`. It waits until the call can be sent, and then for the
/// answer.
template <Method Called>
class [[nodiscard]] awaited_call : awaited {
 public:
  using answer = result<answer_to<Called>>;
  struct no_loan {};
  using loan_of_call = std::conditional_t<LendsMemory<Called>, loan, no_loan>;

  awaited_call(reference<caller_core> core, request_for<Called> request, const wait_limit& limit,
               const loan_of_call& lent = {}) noexcept
      : awaited(proceed, test, limit), core_(std::move(core)), request_(request), lent_(lent) {}
  awaited_call(const awaited_call&) = delete;
  awaited_call& operator=(const awaited_call&) = delete;
  ~awaited_call() {
    leave_queue();
    if (is_sent_) core_->give_up(slot_);
  }

  /// For `as_sender` only: the channel whose `poll` resumes the operation. \pre the caller was not
  /// moved from
  [[nodiscard]] channel_core& polled() const noexcept { return core_->polled(); }

  /// Awaited calls that need no lane are sent in order, so such a call must not overtake the calls
  /// that already wait.
  [[nodiscard]] bool await_ready() noexcept { return !has_to_queue() && advance(); }
  void await_suspend(std::coroutine_handle<> waiting) noexcept {
    waiting_ = waiting;
    if (!is_sent_ && is_ordered()) {
      is_queued_ = true;
      core_->enter_queue(description);
    }
    core_->polled().continue_when(*this);
  }
  [[nodiscard]] answer await_resume() noexcept { return *std::move(answer_); }

 private:
  static constexpr const method_description& description = description_of<Called>;

  [[nodiscard]] static state test(condition& self) noexcept {
    auto& mine = static_cast<awaited_call&>(self);
    caller_core& core = *mine.core_.get();
    core.take_arrived();
    if (mine.is_sent_ ? core.is_done(mine.slot_) : mine.may_begin()) return state::met;
    return core.lacks_places() ? state::unmet_so_far : state::unmet;
  }
  static void proceed(continuation& self) noexcept {
    auto& mine = static_cast<awaited_call&>(self);
    if (mine.has_expired() && !(mine.is_sent_ && mine.core_->is_done(mine.slot_)))
      mine.answer_ = answer(mine.end_at_limit());
    else if (!mine.advance())
      return mine.core_->polled().continue_when(mine);
    mine.leave_queue();
    mine.waiting_.resume();
  }
  [[nodiscard]] error end_at_limit() noexcept {
    if (!std::exchange(is_sent_, false))
      return limit().failure(
          Called::name,
          "the call was not sent, because there was no room for it, or no lane (a connection for "
          "lent memory): take and drop answers of earlier calls, or allow more time");
    if (!core_->give_up(slot_)) return caller_core::still_accessible(Called::name);
    return limit().failure(Called::name, "no answer has arrived");
  }
  [[nodiscard]] bool may_begin() noexcept { return core_->may_begin() && may_lend(); }
  [[nodiscard]] bool may_lend() const noexcept {
    if constexpr (LendsMemory<Called>)
      return core_->may_lend(description, lent_);
    else
      return true;
  }
  [[nodiscard]] result<std::uint16_t> send() noexcept {
    if constexpr (LendsMemory<Called>) {
      return send_lending_call<Called>(*core_.get(), core_->begin_lending(description, lent_),
                                       request_, lent_);
    } else {
      VERBSPP_TRY(space, core_->begin(description));
      return send_call<Called>(*core_.get(), space, request_);
    }
  }
  [[nodiscard]] bool has_to_queue() const noexcept {
    return core_ && is_ordered() && core_->has_queue();
  }
  /// True unless the call lends memory that is not sent: while such a call waits for a lane, it
  /// must not delay calls that need none.
  [[nodiscard]] bool is_ordered() const noexcept {
    if constexpr (LendsMemory<Called>)
      return core_->sends(description, lent_);
    else
      return true;
  }
  void leave_queue() noexcept {
    if (std::exchange(is_queued_, false)) core_->leave_queue();
  }
  /// Sends the call, and takes the answer, if that is possible now. \returns true if the call has
  /// finished
  [[nodiscard]] bool advance() noexcept {
    if (!core_) {
      answer_ =
          answer(error(error_kind::invalid_input, Called::name, "this caller was moved from"));
      return true;
    }
    if (!is_sent_) {
      const result<std::uint16_t> sent = send();
      if (sent.has_error()) {
        if (sent.assume_error() == error_kind::would_block) return false;
        answer_ = answer(sent.assume_error());
        return true;
      }
      slot_ = sent.assume_value();
      is_sent_ = true;
      leave_queue();
    }
    if (!core_->is_done(slot_)) return false;
    is_sent_ = false;
    answer_ = decode_answer<Called>(core_->finish(slot_, description));
    return true;
  }

  reference<caller_core> core_;
  request_for<Called> request_;
  [[no_unique_address]] loan_of_call lent_;
  std::uint16_t slot_ = 0;
  bool is_sent_ = false;
  bool is_queued_ = false;  ///< waits for a credit
  std::optional<answer> answer_{};
  std::coroutine_handle<> waiting_{};
};

}  // namespace detail

template <Method Called>
  requires detail::LendsNothing<Called>
detail::awaited_call<Called> caller::async_call(detail::request_for<Called> request,
                                                const wait_limit& limit) noexcept {
  return {core_, request, limit};
}

template <Method Called, class Memory>
  requires LendsMemory<Called> && SharedMemory<Memory> &&
           Lendable<Memory, detail::description_of<Called>.lends>
detail::awaited_call<Called> caller::async_call(detail::request_for<Called> request,
                                                const Memory& memory,
                                                const wait_limit& limit) noexcept {
  return {core_, request, limit,
          detail::share<detail::description_of<Called>.lends>(
              memory, detail::size_of_request<Called>(request))};
}

}  // namespace verbspp
