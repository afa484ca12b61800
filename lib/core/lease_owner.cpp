// SPDX-License-Identifier: Apache-2.0
#include "core/lease_book.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/core/detail/lease_owner.hpp>
#include <verbspp/work/operations.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <new>
#include <optional>
#include <ostream>
#include <utility>

namespace verbspp {

const char* to_string(lease_by by) noexcept {
  switch (by) {
    case lease_by::window:
      return "window";
    case lease_by::registration:
      return "registration";
    case lease_by::connection:
      return "connection";
  }
  return "unknown";
}

namespace detail {

namespace {

constexpr const char* revoking = "revoke a lease";

/// Returns the failure if the limit, a stop request or an event of the watched descriptor ended a
/// wait; otherwise empty. A wait that fails has broken the connection, which ends the peer's
/// access, so revoking the lease has succeeded, and other failures are not reported.
std::optional<error> end_by_limit(const error* failure) noexcept {
  const bool is_limit = failure != nullptr &&
                        (*failure == error_kind::timed_out || *failure == error_kind::cancelled);
  return is_limit ? std::optional(*failure) : std::nullopt;
}

/// Waits for a posted request of a lease, and returns its result.
transport_result<completed_work> wait_for_result(channel_core& core, const request& posted,
                                                 call_limit limit) noexcept {
  core.open_handle();  // `take` removes it from the count
  return core.take(posted, limit);
}

result<void> check(const channel_core& core, const lease_request& request) noexcept {
  // If `memory` is set without `registered`, the program has not registered the memory, and the
  // lease registers it.
  const bool is_to_be_registered =
      request.by == lease_by::registration && request.memory != nullptr;
  if (request.registered == nullptr && !is_to_be_registered) return region_is_gone(granting_lease);
  if (request.length == 0)
    return error(error_kind::invalid_input, granting_lease, "a lease of 0 bytes cannot be granted");
  if (!core.connection().settings().queue_pair.connection.access.contains(request.rights))
    return error(error_kind::permission, granting_lease,
                 "the channel does not allow the peer these rights: build it with an .access(...) "
                 "that includes them");
  return success();
}

/// The book of the channel's leases, which is created for the first lease.
result<lease_book*> open_book(channel_core& core) noexcept {
  owned<lease_book>& book = core.leases();
  if (!book) book = owned<lease_book>(new (std::nothrow) lease_book());
  if (!book) return error::from_errno(ENOMEM, granting_lease);
  return book.get();
}

result<lease_record*> grant_window(channel_core& core, lease_book& book,
                                   const lease_request& request, bool waits,
                                   const wait_limit& until) noexcept {
  if (core.connection().type() != transport::rc) return without_windows("lease memory on UC");
  VERBSPP_TRYV(book.check_windows(core));
  if (waits && !core.sends().need_not_wait()) VERBSPP_TRYV(core.wait_for_send_room(1, until));
  VERBSPP_TRY(record, book.take_window(core.connection().domain()));
  ibv_mw* const window = record->window.native();
  const ibv_mw_bind_info part{.mr = request.registered,
                              .addr = request.address,
                              .length = request.length,
                              .mw_access_flags = request.rights.bits};
  const bind_operation bind(window, part, {});
  record->bind = {};
  const auto posted = core.post(bind, record->bind);
  if (!posted.has_value()) {
    book.put_back(*record);
    return posted.assume_error();
  }
  window->rkey = bind.rkey;
  ++record->binds;
  record->key = remote_key(bind.rkey);
  record->is_void = false;
  record->granted = request;
  book.open(*record, core);
  if (!waits) {
    core.sends().note_unheld(record->bind.number);
    return record;
  }
  const auto bound = wait_for_result(core, record->bind, until);
  if (bound.has_value()) return record;
  // The window's current key is unknown, so the window is not reused.
  if (record->core != nullptr) book.close(*record);
  delete record;
  return error(bound.assume_error());
}

result<lease_record*> new_record(const channel_core& core, const lease_request& request) noexcept {
  auto* const record =
      new (std::nothrow) lease_record(memory_window_owner(core.connection().domain()));
  if (record == nullptr) return error::from_errno(ENOMEM, granting_lease);
  record->granted = request;
  return record;
}

result<lease_record*> grant_registration(channel_core& core, lease_book& book,
                                         const lease_request& request) noexcept {
  const access_flags to_write = access::remote_write | access::remote_atomic;
  VERBSPP_TRY(own, memory_registration::create(
                       core.connection().domain(), request.memory, request.length, request.address,
                       request.rights.intersects(to_write) ? request.rights | access::local_write
                                                           : request.rights));
  VERBSPP_TRY(record, new_record(core, request));
  record->key = remote_key(own.range().rkey);
  record->own.emplace(std::move(own));
  book.open(*record, core);
  return record;
}

result<lease_record*> grant_by_connection(channel_core& core, lease_book& book,
                                          const lease_request& request) noexcept {
  if (request.registered->pd != core.connection().domain().below().native_handle())
    return error(error_kind::invalid_input, granting_lease,
                 "the memory is registered in a protection domain other than the channel's: "
                 "register it in the channel's");
  VERBSPP_TRY(record, new_record(core, request));
  record->key = remote_key(request.registered->rkey);
  book.open(*record, core);
  return record;
}

result<lease_record*> grant_any(channel_core& core, const lease_request& request, bool waits,
                                call_limit limit) noexcept {
  if (core.state() != channel_state::connected) return core.connection().refusal(granting_lease);
  // All waits of this call share one limit, which begins now.
  const wait_limit until = limit.begin(core.connection().settings().default_limit);
  if (limit.has_passed()) return channel_core::ended_before(until);
  VERBSPP_TRYV(check(core, request));
  VERBSPP_TRY(book, open_book(core));
  switch (request.by) {
    case lease_by::window:
      return grant_window(core, *book, request, waits, until);
    case lease_by::registration:
      return grant_registration(core, *book, request);
    case lease_by::connection:
      return grant_by_connection(core, *book, request);
  }
  return error(
      error_kind::invalid_input, granting_lease,
      "this value of lease_by is unknown: use lease_by::window, registration or connection");
}

/// True if a request can revoke the lease: its window was not invalidated, the channel is
/// connected, and the library may invalidate windows on this device.
/// \pre the lease has not ended
bool is_revoked_by_request(const lease_record& record) noexcept {
  return record.granted.by == lease_by::window && !record.is_void &&
         record.core->leases()->invalidates() && record.core->state() == channel_state::connected;
}

/// Invalidates the window with a request. \returns the failure of the wait, if `end_by_limit`
/// returns it; otherwise empty
std::optional<error> invalidate(lease_record& record, channel_core& core,
                                const wait_limit& until) noexcept {
  if (!record.invalidation && !core.sends().has_room()) {
    const auto room = core.wait_for_send_room(1, until);
    if (!room.has_value()) return end_by_limit(&room.assume_error());
  }
  if (!record.post_invalidation()) return std::nullopt;
  const auto done = wait_for_result(core, *record.invalidation, until);
  record.invalidation.reset();
  record.is_void = done.has_value();
  return record.is_void ? std::nullopt : end_by_limit(done.assume_error().call());
}

/// Revokes the peer's access through a window. \returns the failure of a wait, if `end_by_limit`
/// returns it; otherwise empty
std::optional<error> close_window(lease_record& record, const wait_limit& until,
                                  bool by_request) noexcept {
  channel_core& core = *record.core;
  // Checks first whether the peer has already invalidated the key.
  core.collect();
  std::optional<error> ended;
  if (record.invalidation || (by_request && is_revoked_by_request(record) && !until.has_passed()))
    ended = invalidate(record, core, until);
  // Deallocating a window before its bind is executed would break the connection.
  if (record.core != nullptr && record.is_binding()) {
    const auto ended_now = core.wait_for(record.bind, until);
    if (!ended && ended_now) ended = end_by_limit(&*ended_now);
  }
  if (record.core != nullptr && !record.is_void) record.deallocate_window();
  return ended;
}

/// Revokes the access. \returns the same as `invalidate`
std::optional<error> take_back(lease_record& record, call_limit limit, bool by_request) noexcept {
  std::optional<error> ended;
  channel_core* const core = record.core;
  if (core == nullptr) return ended;
  switch (record.granted.by) {
    case lease_by::window:
      ended = close_window(record, limit.begin(core->connection().settings().default_limit),
                           by_request);
      break;
    case lease_by::registration:
      record.give_up();
      break;
    case lease_by::connection:
      core->end_connection(error(error_kind::not_connected, revoking,
                                 "a lease by connection was revoked, which closes the connection"));
      break;
  }
  if (record.core != nullptr) core->leases()->close(record);
  return ended;
}

/// The records of leases that keep memory which the device may still access. These records and
/// their memory are never freed.
lease_record* all_never_freed = nullptr;

/// Disposes of the record after the lease has ended. \returns true if the program may reuse the
/// memory
bool finish(lease_record& record, lease_book* book) noexcept {
  const bool is_free = record.outcome.has_value();
  if (is_free) record.memory.let_go();
  if (record.memory.keeper != nullptr)
    record.next = __atomic_exchange_n(&all_never_freed, &record, __ATOMIC_RELAXED);
  else if (book != nullptr && record.window.native() != nullptr)
    book->put_back(record);
  else
    delete &record;
  return is_free;
}

/// The longest time for which the destructor of a lease waits for requests of the lease. After
/// that, the connection is broken.
constexpr std::chrono::nanoseconds longest_drop = std::chrono::seconds(1);

std::chrono::nanoseconds limit_of_drop(const lease_record& record) noexcept {
  if (record.core == nullptr) return longest_drop;
  return std::min(longest_drop, record.core->connection().settings().default_limit);
}

/// The book of the lease's channel; null if the lease has ended.
lease_book* book_of(const lease_record& record) noexcept {
  return record.core != nullptr ? record.core->leases().get() : nullptr;
}

}  // namespace

result<lease_owner> lease_owner::grant(channel_core& core, const lease_request& request, bool waits,
                                       call_limit limit, kept_memory memory) noexcept {
  const auto granted = grant_any(core, request, waits, limit);
  if (!granted.has_value()) {
    memory.let_go();
    return granted.assume_error();
  }
  granted.assume_value()->memory = memory;
  return lease_owner(granted.assume_value());
}

result<void> lease_owner::revoke(call_limit limit) noexcept {
  if (record_ == nullptr)
    return error(error_kind::invalid_input, revoking,
                 "this lease is empty: it was already revoked, moved from, or never granted");
  lease_record& record = *std::exchange(record_, nullptr);
  lease_book* const book = book_of(record);
  const auto ended = take_back(record, limit, true);
  const result<void> outcome = record.outcome;
  finish(record, book);
  // The kind `driver` means that the peer may still have access, whatever the errno.
  if (outcome.has_error())
    return outcome.assume_error().as(error_kind::driver, outcome.assume_error().hint());
  return ended ? result<void>(*ended) : outcome;
}

bool lease_owner::grant_and_then(continuation& next) noexcept {
  return record_->granted.by == lease_by::window && record_->core != nullptr &&
         record_->core->continue_with(record_->bind, next);
}

result<void> lease_owner::granted(channel_core& core) noexcept {
  if (record_->granted.by != lease_by::window) return success();
  const auto bound = wait_for_result(core, record_->bind, call_limit::of_channel());
  if (!bound.has_value()) return error(bound.assume_error());
  return success();
}

channel_core* lease_owner::polled() noexcept {
  if (record_ == nullptr || record_->core == nullptr) return nullptr;
  // Checks first whether the peer has already invalidated the key.
  record_->core->collect();
  if (record_->core == nullptr || !is_revoked_by_request(*record_)) return nullptr;
  return record_->core;
}

bool lease_owner::revoke_and_then(continuation& next) noexcept {
  if (record_ == nullptr || record_->core == nullptr || !record_->post_invalidation()) return false;
  return record_->core->continue_with(*record_->invalidation, next);
}

bool lease_owner::drop() noexcept {
  if (record_ == nullptr) return true;
  lease_record& record = *std::exchange(record_, nullptr);
  lease_book* const book = book_of(record);
  const bool by_request =
      record.core != nullptr && (record.core->sends().outstanding() == 0 || record.is_binding());
  const std::chrono::nanoseconds limit = limit_of_drop(record);
  static_cast<void>(take_back(record, limit, by_request));
  if (record.outcome.has_error()) {
    const error& e = record.outcome.assume_error();
    report_release(e.native_errno() != 0 ? e.native_errno() : EIO, e.operation(), e.hint());
  }
  return finish(record, book);
}

bool lease_owner::note_invalidated(remote_key key) noexcept {
  if (record_ == nullptr || record_->granted.by != lease_by::window || record_->key != key)
    return false;
  record_->is_void = true;
  return true;
}

bool lease_owner::is_open() const noexcept {
  return record_ != nullptr && record_->core != nullptr && !record_->is_void &&
         record_->core->state() == channel_state::connected;
}

result<remote_key> lease_owner::key() const noexcept {
  constexpr const char* operation = "remote memory of a lease";
  if (record_ == nullptr)
    return error(error_kind::invalid_input, operation,
                 "this lease is empty: it was revoked, moved from, or never granted");
  if (!is_open())
    return error(
        error_kind::not_connected, operation,
        record_->is_void
            ? "the peer has returned the lease: grant another one"
            : "the lease has ended with its connection: grant another one over a new connection");
  return record_->key;
}

std::uint64_t lease_owner::address() const noexcept { return record_->granted.address; }
std::uint64_t lease_owner::length() const noexcept { return record_->granted.length; }
lease_by lease_owner::by() const noexcept { return record_->granted.by; }
ibv_mw* lease_owner::window() const noexcept { return record_->window.native(); }

void lease_owner::print(std::ostream& out, access_flags rights) const {
  if (record_ == nullptr) {
    out << "lease, empty";
    return;
  }
  const lease_record& record = *record_;
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(),
                ", %" PRIu64 " byte%s at 0x%" PRIx64 ", rkey 0x%08" PRIx32, record.granted.length,
                record.granted.length == 1 ? "" : "s", record.granted.address, record.key.value());
  out << "lease of " << rights << " by " << to_string(record.granted.by) << text.data()
      << (is_open() ? "" : ", ended");
}

}  // namespace detail

}  // namespace verbspp
