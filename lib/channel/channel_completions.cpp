// SPDX-License-Identifier: Apache-2.0
#include "channel/hub_state.hpp"
#include "channel/waiting.hpp"
#include <verbspp/channel/detail/channel_connection.hpp>

#include <algorithm>
#include <iterator>
#include <optional>

namespace verbspp::detail {

namespace {

// What a request was flushed because of, where the root of it has no words of its own.
constexpr const char* broken_off =
    "the queue pair went into the error state by itself, usually since the peer asked for what is "
    "not allowed here";
constexpr const char* too_late = "the limit of a wait had passed, which gave the connection up";
constexpr const char* stopped = "a wait was asked to stop, which gave the connection up";

}  // namespace

bool channel_connection::collect_with_care() noexcept {
  if (member_ != nullptr) {
    collect_from_hub();
    return false;
  }
  ibv_wc completions[16];
  const int filled = [&] {
    const one_thread only(users_);
    return poll_native(completions);
  }();
  return take_others(completions, filled);
}

void channel_connection::collect_from_hub() noexcept {
  const int failed = member_->hub ? member_->hub->look() : 0;
  {
    const one_thread only(users_);
    member_->take_each([this](const ibv_wc& completion) {
      if (is_shared_receive(completion.wr_id))
        take_shared_failure(completion);
      else
        take_completion(completion);
    });
  }
  if (failed < 0) lose_queue(failed);
}

/// A shared receive has failed, and the connection with it.
void channel_connection::take_shared_failure(const ibv_wc& completion) noexcept {
  if (!queue_pair_) return;
  note_failure(work_error(static_cast<work_status>(number_of(completion.status)),
                          completion.vendor_err, completion.wr_id, local_.number.value())
                   .with_operation(work_operation::receive),
               nullptr);
}

/// What polling has given, if it isn't just the success of one request of the send queue. \returns
/// whether there may be more
bool channel_connection::take_others(const ibv_wc (&completions)[16], int filled) noexcept {
  if (filled < 0) {
    lose_queue(filled);
    return false;
  }
  const one_thread only(users_);
  const ibv_wc* const end = completions + filled;
  const ibv_wc* next = completions;
  while (next != end && next->status == IBV_WC_SUCCESS && !is_receive(next->wr_id)) ++next;
  // Of requests of the send queue that have succeeded, the last one tells of all before it.
  if (next != completions) take_sends_until(next[-1].wr_id);
  for (; next != end; ++next) take_completion(*next);
  return end == std::end(completions);
}

void channel_connection::take_failure(const ibv_wc& completion) noexcept {
  const std::uint32_t status = number_of(completion.status);
  if (static_cast<std::int64_t>(completion.wr_id) < 0) {
    receive_slot* const slot = slot_of(completion.wr_id);
    if (slot == nullptr) return;
    ++receive_room_;
    return fail_receive(*slot, status, completion.vendor_err);
  }
  const std::uint64_t number = completion.wr_id & below_operation;
  if (number < completed_) return;
  // Those before it had no failure of their own.
  complete_sends(number);
  fail_send(completed_, static_cast<work_operation>(completion.wr_id >> operation_at), status,
            completion.vendor_err);
}

void channel_connection::fail_send(std::uint64_t number, work_operation operation,
                                   std::uint32_t status, std::uint32_t vendor_code) noexcept {
  lost_->first = std::min(lost_->first, number);
  if (status != IBV_WC_WR_FLUSH_ERR && lost_->root == lost_sends::none) {
    lost_->root = number;
    lost_->status = status;
    lost_->vendor_code = vendor_code;
  }
  note_failure(
      work_error(static_cast<work_status>(status), vendor_code, number, local_.number.value())
          .with_operation(operation),
      scope_of_send(number));
  complete_sends(number + 1);
}

void channel_connection::fail_receive(receive_slot& slot, std::uint32_t status,
                                      std::uint32_t vendor_code) noexcept {
  slot.status = status;
  slot.vendor_code = vendor_code;
  slot.connection = static_cast<std::uint16_t>(generation_);
  note_failure(
      work_error(static_cast<work_status>(status), vendor_code, slot.id, local_.number.value())
          .with_operation(work_operation::receive),
      slot.scope);
  finish(slot);
}

void channel_connection::note_failure(const work_error& failure, scope_state* scope) noexcept {
  const bool was_flushed = failure.status() == work_status::flushed;
  const bool is_first = !failure_;
  note_root(failure, !was_flushed);
  need_attention(true);
  if (is_first) stop_device();
  if (was_flushed) failure_->count_flushed();
  if (scope != nullptr) ++(was_flushed ? scope->flushed : scope->failed);
}

work_error channel_connection::explained(const work_error& failure) noexcept {
  if (failure.status() != work_status::flushed || !failure_) return failure;
  if (!root_is_certain_ && queue_pair_)
    if (const auto told = failure_told_to(listener_)) {
      note_root(*told, true);
      failure_->note_end(wait_end::async_event);
    }
  const error& root = failure_->root();
  const auto failed = work_error::from(root);
  if (failed && failed->status() == work_status::flushed) return failure.with_cause(broken_off);
  if (root.hint() != nullptr) return failure.with_cause(root.hint());
  return failure.with_cause(root == error_kind::cancelled ? stopped : too_late);
}

std::optional<work_error> channel_connection::failure_of(request one) noexcept {
  if (one.operation == work_operation::receive) {
    if (one.slot->status == IBV_WC_SUCCESS) return std::nullopt;
    const work_error failed = work_error(static_cast<work_status>(one.slot->status),
                                         one.slot->vendor_code, one.slot->id, local_.number.value())
                                  .with_operation(one.operation);
    const bool is_of_now = one.slot->connection == static_cast<std::uint16_t>(generation_);
    return is_of_now ? explained(failed) : failed;
  }
  for (const lost_sends* lost = lost_.get(); lost != nullptr; lost = lost->earlier.get()) {
    if (one.number < lost->first || one.number >= lost->end) continue;
    const bool is_root = one.number == lost->root;
    const work_error failed =
        work_error(is_root ? static_cast<work_status>(lost->status) : work_status::flushed,
                   is_root ? lost->vendor_code : 0, one.number, lost->queue_pair)
            .with_operation(one.operation);
    return lost == lost_.get() ? explained(failed) : failed;
  }
  return std::nullopt;
}

transport_result<completed_work> channel_connection::take_with_attention(
    request one, bool was_given_up) noexcept {
  scope_state* const scope = open_scope_of(one);
  const std::optional<work_error> failure = failure_of(one);
  std::optional<completed_work> done;
  if (one.operation == work_operation::receive) {
    done.emplace(one.slot->opcode, one.slot->byte_count, one.slot->flags, one.slot->immediate);
    release(*one.slot);
  } else {
    done.emplace(number_of(one.operation), one.bytes, 0U, 0U);
  }
  if (scope != nullptr) {
    ++scope->taken;
    if (failure) --(failure->status() == work_status::flushed ? scope->flushed : scope->failed);
  }
  const bool was_orphan = is_orphan_;
  const std::optional<error> root =
      was_given_up && failure_ ? std::optional(failure_->root()) : std::nullopt;
  drop_handle();
  if (one.scope != 0 && scope == nullptr)
    return error(error_kind::invalid_input, "result of a request",
                 "the scope that it was posted in has ended, and reported how it went");
  if (!failure) return *done;
  // The limit of the wait has ended the connection; the request itself was flushed.
  if (root) return *root;
  if (was_orphan)
    return error(error_kind::not_connected, "result of a request",
                 "its channel was destroyed before the request had finished");
  return *failure;
}

void channel_connection::leave_rarely(request one, bool must_wait) noexcept {
  const scope_state* const scope = open_scope_of(one);
  const bool is_receive = one.operation == work_operation::receive;
  if (is_done(one)) {
    if (is_receive) release(*one.slot);
  } else if ((scope != nullptr || one.keeps) && !must_wait) {
    // The scope sees to it, or nobody's memory depends on it.
    if (is_receive) one.slot->notes |= receive_slot::unheld;
  } else {
    const auto ended = wait_for(one, scope != nullptr ? scope->limit : nullptr);
    const auto cause = ended ? ended_by_drop(*ended) : std::nullopt;
    if (cause && failure_) failure_->replace_root(*cause);
    if (is_receive) release(*one.slot);
  }
  drop_handle();
}

}  // namespace verbspp::detail
