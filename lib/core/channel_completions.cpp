// SPDX-License-Identifier: Apache-2.0
/// \file
/// The completions of a channel's requests, and the results of the requests.
///
/// `collect` (channel_core.hpp) completes one successful request that keeps no memory itself. For
/// all else, it calls these functions:
///
///     collect_with_care ──┬─> collect_own ──────> complete_next, or complete_all
///     (needs_care)        └─> collect_counted ─┬> complete_all
///                                              └> collect_from_hub ─> take_found
///     complete_all, take_found ─> complete ─┬─> complete_receive
///                                           └─> complete_failed ─> fail_send, fail_receive
#include "core/channel_member.hpp"
#include "core/inbox_state.hpp"
#include "core/lease_book.hpp"
#include <verbspp/core/detail/channel_core.hpp>

#include <optional>

namespace verbspp::detail {

namespace {

/// `channel_core::is_lost` recognizes an error by the address of this hint.
constexpr char lost_memory[] =
    "the device did not destroy the queue pair, so it may still access the memory of this request: "
    "memory that the request owned or shared is never freed; do not free other memory of the "
    "request";

}  // namespace

VERBSPP_DATA_PATH void channel_core::complete_receive(const ibv_wc& completion) noexcept {
  const auto note_invalidated = [&] {
    if ((completion.wc_flags & IBV_WC_WITH_INV) != 0 && leases_) [[unlikely]]
      leases_->note_invalidated(completion.invalidated_rkey);
  };
  if (inbox_state* const inbox = inboxes_.find(completion.wr_id)) {
    note_invalidated();
    pool_place& place = receive_message(*inbox, completion);
    place.end_receive();
    return inboxes_.deliver(*inbox, place);
  }
  receive_slot* const slot = receives_.find(completion.wr_id);
  if (slot == nullptr) [[unlikely]]
    return;
  note_invalidated();
  slot->status = IBV_WC_SUCCESS;
  slot->opcode = number_of(completion.opcode);
  slot->byte_count = completion.byte_len;
  slot->flags = completion.wc_flags;
  slot->immediate = completion.imm_data;
  complete(*slot);
}

VERBSPP_DATA_PATH void channel_core::complete(const ibv_wc& completion) noexcept {
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]]
    return complete_failed(completion);
  if (is_receive(completion.wr_id)) return complete_receive(completion);
  sends_.complete(completion.wr_id, guard_);
}

bool channel_core::collect_with_care() noexcept {
  if (!needs_care_to_collect_ && !sends_.is_suspect()) [[likely]]
    return collect_own();
  return collect_counted();
}

bool channel_core::collect_counted() noexcept {
  // Memory that is released here may drop handles in its destructor. `take` has not counted the
  // handle whose result it takes, so it is counted here: otherwise, the failures of earlier
  // connections could be forgotten.
  open_handle();
  const bool has_more = [this] {
    if (member_) {
      collect_from_hub();
      return false;
    }
    ibv_wc completions[completions_per_poll];
    const int filled = [&] {
      const one_thread only(users_);
      return connection_.poll(completions);
    }();
    return filled != 0 && complete_all(completions, filled);
  }();
  --handles_;
  return has_more;
}

void channel_core::collect_from_hub() noexcept {
  const int failed = member_->hub ? member_->hub->look() : 0;
  static_cast<void>(take_found());
  if (failed < 0) lose_queue(failed);
  take_hang_up();
}

/// Breaks the channel if an event that ends the connection was read (`seen_end`).
void channel_core::notice_end() noexcept {
  const std::optional<wait_end> end = connection_.seen_end();
  if (!end || connection_.failure()) return;
  while (collect()) {
  }
  give_up(*end, reason_of(*end, wait_limit::forever()));
}

/// Takes the completions that the hub has found. \returns true if there were any
bool channel_core::take_found() noexcept {
  const one_thread only(users_);
  return member_->take_each([this](std::uint64_t wr_id) { sends_.complete(wr_id, guard_); },
                            [this](const ibv_wc& completion) {
                              if (is_shared_receive(completion.wr_id))
                                fail_shared_receive(completion);
                              else
                                complete(completion);
                            });
}

void channel_core::take_hang_up() noexcept {
  if (member_->take_hang_up() && !connection_.failure())
    give_up(wait_end::file_descriptor, reason_of(wait_end::file_descriptor, wait_limit::forever()));
}

/// Processes the completions that one poll has returned. Some callers handle the usual case, a
/// single successful completion, themselves.
/// \returns true if there may be more completions
bool channel_core::complete_all(const ibv_wc* completions, int filled) noexcept {
  if (filled < 0) {
    lose_queue(filled);
    return false;
  }
  const one_thread only(users_);
  const ibv_wc* const end = completions + filled;
  const ibv_wc* next = completions;
  while (next != end && next->status == IBV_WC_SUCCESS && !is_receive(next->wr_id)) ++next;
  // The last of several successful requests in the send queue completes all requests before it.
  if (next != completions) sends_.complete(next[-1].wr_id, guard_);
  for (; next != end; ++next) complete(*next);
  return filled == completions_per_poll;
}

void channel_core::complete_failed(const ibv_wc& completion) noexcept {
  const std::uint32_t status = number_of(completion.status);
  if (inbox_state* const inbox = inboxes_.find(completion.wr_id))
    return fail_receive(*inbox, status, completion.vendor_err);
  if (is_receive(completion.wr_id)) {
    receive_slot* const slot = receives_.find(completion.wr_id);
    if (slot != nullptr) fail_receive(*slot, status, completion.vendor_err);
    return;
  }
  const std::uint64_t number = completion.wr_id & below_operation;
  if (sends_.is_done(number)) return;
  // The earlier requests have succeeded, since their failures would have been reported before this
  // one.
  sends_.complete_until(number, guard_);
  fail_send(number, static_cast<work_operation>(completion.wr_id >> operation_at), status,
            completion.vendor_err);
}

void channel_core::fail_send(std::uint64_t number, work_operation operation, std::uint32_t status,
                             std::uint32_t vendor_code) noexcept {
  sends_.fail(number, status, vendor_code);
  note_failure(connection_.failed(status, vendor_code, number, operation),
               sends_.scope_of(number, scopes_));
  sends_.complete_until(number + 1, guard_);
}

void channel_core::fail_receive(receive_slot& slot, std::uint32_t status,
                                std::uint32_t vendor_code) noexcept {
  slot.status = status;
  slot.vendor_code = vendor_code;
  slot.queue_pair = connection_.local().number.value();
  slot.connection = static_cast<std::uint16_t>(connection_.generation());
  note_failure(connection_.failed(status, vendor_code, slot.id, work_operation::receive),
               slot.scope);
  complete(slot);
}

void channel_core::fail_receive(inbox_state& inbox, std::uint32_t status,
                                std::uint32_t vendor_code) noexcept {
  pool_place& place = inbox.take_posted();
  const std::uint32_t number = place.number();
  place.end_receive();
  inbox.note_ended();
  receives_.note_left();
  if (!guard_.is_lost()) place.give_back_unfilled();
  note_failure(connection_.failed(status, vendor_code, number, work_operation::receive), nullptr);
  inboxes_.delete_if_finished(inbox);
}

/// Breaks the connection, because a shared receive of this channel has failed.
void channel_core::fail_shared_receive(const ibv_wc& completion) noexcept {
  if (!connection_.has_queue_pair()) return;
  note_failure(connection_.failed(number_of(completion.status), completion.vendor_err,
                                  place_of_shared_receive(completion.wr_id).number(),
                                  work_operation::receive),
               nullptr);
}

void channel_core::note_failure(const work_error& failure, scope_state* scope) noexcept {
  const bool was_flushed = failure.status() == work_status::flushed;
  const bool is_first = !connection_.failure();
  fail(failure.with_peer(queue_pair_number_of(connection_.peer_number())), !was_flushed);
  suspect_results();
  if (is_first) connection_.stop();
  if (was_flushed) connection_.failure()->count_flushed();
  if (scope != nullptr) ++(was_flushed ? scope->flushed : scope->failed);
}

void channel_core::lose_queue(int returned) noexcept {
  if (!connection_.lose_queue(returned)) return;
  sends_.close();
  receives_.close();
  destroy_queue_pair();
}

std::optional<work_error> channel_core::failure_of(request one) noexcept {
  if (one.is_receive()) {
    const receive_slot& slot = *one.slot;
    if (slot.status == IBV_WC_SUCCESS) return std::nullopt;
    const work_error failed = work_error(static_cast<work_status>(slot.status), slot.vendor_code,
                                         slot.id, slot.queue_pair)
                                  .with_operation(one.operation);
    const bool is_of_now = slot.connection == static_cast<std::uint16_t>(connection_.generation());
    return is_of_now ? connection_.explained(failed) : failed;
  }
  const lost_sends* const lost = sends_.failure_of(one.number);
  if (lost == nullptr) return std::nullopt;
  const work_error failed = lost->error_of(one);
  return sends_.is_of_this_connection(*lost) ? connection_.explained(failed) : failed;
}

transport_result<completed_work> channel_core::take_with_care(request one,
                                                              call_limit limit) noexcept {
  open_handle();
  if (is_done(one)) collect_broken();
  const bool was_given_up = !is_done(one) && wait_for(one, limit).has_value();
  scope_state* const scope = scopes_.of(one);
  const std::optional<work_error> failure = failure_of(one);
  const completed_work done = success_of(one);
  if (scope != nullptr) {
    ++scope->taken;
    if (failure) --(failure->status() == work_status::flushed ? scope->flushed : scope->failed);
  }
  const bool was_orphan = is_orphan_;
  const int errnum_if_lost = has_lost_memory(failure) ? connection_.destroy_errnum() : 0;
  const std::optional<error> root = was_given_up ? root_of_failure() : std::nullopt;
  drop_handle();
  if (errnum_if_lost != 0)
    return error::from_errno(errnum_if_lost, "ibv_destroy_qp").as(error_kind::driver, lost_memory);
  if (one.scope != 0 && scope == nullptr)
    return error(error_kind::invalid_input, "result of a request",
                 "the scope in which the request was posted has ended: take the result of a "
                 "request before its scope ends");
  if (!failure) return done;
  // An event, such as the limit, ended the wait for the request, and broke the connection. So this
  // function returns that event as the cause.
  if (root) return *root;
  if (was_orphan && failure->status() == work_status::flushed)
    return error(error_kind::not_connected, "result of a request",
                 "the request had not succeeded when its channel was destroyed");
  return *failure;
}

bool channel_core::is_lost(const transport_error& failure) noexcept {
  return failure.call() != nullptr && failure.call()->hint() == lost_memory;
}

/// True if a failed request was flushed, and its queue pair could not be destroyed, so the device
/// may still access the memory of the request.
bool channel_core::has_lost_memory(const std::optional<work_error>& failure) const noexcept {
  return guard_.is_lost() && failure && failure->status() == work_status::flushed;
}

bool channel_core::drop_with_care(request one, bool must_wait) noexcept {
  const scope_state* const scope = scopes_.of(one);
  bool is_free = true;
  if (is_done(one)) {
    is_free = !has_lost_memory(failure_of(one));
    if (one.is_receive()) receives_.release(*one.slot);
  } else if ((scope != nullptr || one.keeps) && !must_wait) {
    // There is no need to wait here: either the scope waits for the request, or the request uses no
    // memory that the program could free.
    if (one.is_receive())
      receives_.note_unheld(*one.slot);
    else
      sends_.note_unheld(one.number);
  } else {
    const auto ended = wait_for(one, scope != nullptr ? scope->limit : call_limit::of_channel());
    const auto cause = ended ? ended_by_drop(*ended) : std::nullopt;
    if (cause && connection_.failure()) connection_.failure()->replace_root(*cause);
    is_free = !has_lost_memory(failure_of(one));
    if (one.is_receive()) receives_.release(*one.slot);
  }
  drop_handle();
  return is_free;
}

}  // namespace verbspp::detail
