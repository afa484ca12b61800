// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/stop_callback.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/core/channel_failure.hpp>
#include <verbspp/core/detail/channel_connection.hpp>
#include <verbspp/core/detail/channel_polls.hpp>
#include <verbspp/core/detail/inbox_list.hpp>
#include <verbspp/core/detail/memory_guard.hpp>
#include <verbspp/core/detail/one_thread.hpp>
#include <verbspp/core/detail/open_scopes.hpp>
#include <verbspp/core/detail/receive_slots.hpp>
#include <verbspp/core/detail/request.hpp>
#include <verbspp/core/detail/send_window.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/detail/never_free.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/wait/continuation.hpp>
#include <verbspp/work/batch.hpp>
#include <verbspp/work/detail/wr_id.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting.hpp>
#include <verbspp/work/transport.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

namespace verbspp::detail {

struct channel_member;
struct inbox_state;
class lease_book;
struct pool_place;

/// The terms on which a request is posted and tracked.
struct posting_terms {
  scope_state* scope = nullptr;                 ///< the scope that waits for the request, if any
  bool waits_for_room = false;                  ///< waits, instead of failing, if the queue is full
  call_limit limit = call_limit::of_channel();  ///< the limit of that wait, outside of scopes
  bool is_signaled = true;                      ///< requests a completion; ignored by receives
  bool has_handle = true;                       ///< a handle, or the caller, will take the result
};

/// Stands for the memory of a request that owns none.
struct no_memory {};

/// The state of a channel. It is allocated separately, because handles and scopes point to it. It
/// outlives the channel if handles, inboxes or scopes still exist.
///
/// This class implements the operations that involve several of its parts. A request is *posted*,
/// then *completed* by the device; its handle *takes* the result, or is *dropped*.
class channel_core : stoppable_sleep {
 public:
  [[nodiscard]] static result<channel_core*> create(const channel_settings& settings) noexcept;
  /// The core of an empty channel, which refuses all calls.
  [[nodiscard]] static channel_core& empty() noexcept;
  channel_core(const channel_core&) = delete;
  channel_core& operator=(const channel_core&) = delete;

  // The parts of the channel, and values that are computed from several of them.

  [[nodiscard]] VERBSPP_DATA_PATH const send_window& sends() const noexcept { return sends_; }
  [[nodiscard]] VERBSPP_DATA_PATH send_window& sends() noexcept { return sends_; }
  [[nodiscard]] VERBSPP_DATA_PATH const receive_slots& receives() const noexcept {
    return receives_;
  }
  [[nodiscard]] VERBSPP_DATA_PATH inbox_list& inboxes() noexcept { return inboxes_; }
  [[nodiscard]] VERBSPP_DATA_PATH const channel_connection& connection() const noexcept {
    return connection_;
  }
  [[nodiscard]] VERBSPP_DATA_PATH channel_connection& connection() noexcept { return connection_; }
  [[nodiscard]] VERBSPP_DATA_PATH channel_polls& polls() noexcept { return polls_; }
  /// As `channel::file_descriptor`.
  [[nodiscard]] int loop_descriptor() noexcept {
    polls_.need_care();
    return connection_.loop_descriptor();
  }
  /// The records of the leases; null until the first lease.
  [[nodiscard]] owned<lease_book>& leases() noexcept { return leases_; }
  /// The channel's id in its hub. Without a hub, the generation of the id is 0.
  [[nodiscard]] VERBSPP_DATA_PATH channel_id id() const noexcept { return id_; }
  [[nodiscard]] channel_state state() const noexcept { return connection_.state(); }
  [[nodiscard]] std::uint32_t outstanding() const noexcept {
    return sends_.outstanding() + receives_.outstanding();
  }

  // Posting.

  /// Posts one request to the send queue, and fills `posted`, which must have its default value.
  /// `posted` is not part of the result, so that it can stay in registers. The caller then makes a
  /// handle from `posted`, or waits for the request; `keep` makes the request keep its memory
  /// alive.
  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH result<void> post(const Operation& operation, request& posted,
                                                    const posting_terms& terms = {}) noexcept {
    using traits = operation_traits<Operation>;
    if (!carries(operation)) [[unlikely]]
      return uncarried(traits::name, traits::carried_by(transport::uc));
    // The queue has no room either if the channel is not connected. `make_send_room` then returns
    // the error.
    if (!sends_.has_room()) [[unlikely]]
      if (const result<void> made =
              make_send_room(traits::name, terms.waits_for_room, limit_of(terms));
          !made.has_value())
        return made.assume_error();
    const one_thread only(users_);
    const std::uint64_t number = sends_.next();
    const work_tag tag{.id = wr_id_of(traits::completes_as, number), .signaled = terms.is_signaled};
    if constexpr (traits::only_extended) {
      if (const result<void> done = post_extended(operation, tag); !done.has_value()) [[unlikely]]
        return done;
    } else {
      // A request on UC is filled in as one on RC.
      const result<void> done =
          post_one<transport::rc>(connection_.native(), connection_.capacities(), operation, tag);
      if (!done.has_value()) [[unlikely]]
        return done.assume_error();
    }
    sends_.advance(1, terms.scope);
    if constexpr (is_target<Operation>)
      if (guard_.is_active()) [[unlikely]]
        hide(number, traits::elements(operation));
    posted.number = number;
    posted.operation = traits::completes_as;
    if constexpr (traits::completes_as == work_operation::rdma_read)
      posted.bytes = static_cast<std::uint32_t>(operation.elements.total_length());
    posted.keeps = has_no_memory(traits::elements(operation));
    note_scope(posted, terms);
    return success();
  }

  /// Posts one receive. The parameters have the same meaning as for a request to the send queue.
  [[nodiscard]] VERBSPP_DATA_PATH result<void> post(const receive_operation& operation,
                                                    request& posted,
                                                    const posting_terms& terms = {}) noexcept {
    if (!receives_.is_open() || !receives_.has_room()) [[unlikely]]
      if (const result<void> made = make_receive_room(terms.waits_for_room, limit_of(terms));
          !made.has_value())
        return made.assume_error();
    const one_thread only(users_);
    receive_slot& slot = receives_.next();
    const result<void> done = post_one_receive(
        operation, {.id = wr_id_of(work_operation::receive, slot.id)}, posting_receive,
        connection_.capacities().max_receive_elements, [this](auto* list, auto* rejected) {
          return ibv_post_recv(connection_.native(), list, rejected);
        });
    if (!done.has_value()) [[unlikely]]
      return done.assume_error();
    receives_.commit(slot, terms.scope, terms.has_handle);
    if (guard_.is_active()) [[unlikely]]
      hide(slot, native_of(operation.elements));
    posted.slot = &slot;
    posted.operation = work_operation::receive;
    posted.keeps = has_no_memory(native_of(operation.elements));
    note_scope(posted, terms);
    return success();
  }

  /// Posts up to `wanted` receives for an inbox with one doorbell. These receives have no handles.
  /// \returns the number posted
  [[nodiscard]] result<std::uint32_t> post_receives(inbox_state& inbox,
                                                    std::uint32_t wanted) noexcept;

  /// Checks that an operation can be part of a batch, without checking for room. \returns the
  /// error; empty if there is none
  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH std::optional<error> objection(
      const Operation& operation) const noexcept {
    using traits = operation_traits<Operation>;
    if (!sends_.is_open()) [[unlikely]]
      return connection_.refusal(traits::name);
    if (!carries(operation)) [[unlikely]]
      return uncarried(traits::name, traits::carried_by(transport::uc));
    if (!is_sound<transport::rc>(operation)) [[unlikely]]
      return unsoundness<transport::rc>(operation);
    return std::nullopt;
  }
  /// Records the memory to which the device will write for the requests of a batch, before the
  /// batch is posted. \pre `watches`
  void note_batch_memory(const ibv_send_wr* requests, std::uint32_t count) noexcept;
  /// Counts the requests from a scope's batch that were posted, all of which are signaled.
  VERBSPP_DATA_PATH void commit_batch(std::uint32_t posted, scope_state& scope) noexcept {
    if (posted == 0) return;
    if (guard_.is_active()) [[unlikely]]
      hide_batch(posted);
    sends_.advance(posted, &scope);
  }
  [[nodiscard]] static error posted_within_batch() noexcept;

  /// Makes a posted request keep this memory alive until the request has finished. \pre the request
  /// is not done
  VERBSPP_DATA_PATH void keep(request& posted, const kept_memory& memory) noexcept {
    posted.keeps = true;
    if (posted.is_receive()) return receive_slots::keep(*posted.slot, memory);
    sends_.keep(posted.number, memory);
  }
  /// True if AddressSanitizer or Valgrind was detected. They then report accesses to memory that
  /// the device is using.
  [[nodiscard]] VERBSPP_DATA_PATH bool watches() const noexcept { return guard_.is_active(); }
  /// Makes AddressSanitizer or Valgrind report writes to the memory of a request that was just
  /// posted, until the request has finished (see `device_reads`). \pre `watches`
  void protect(std::uint64_t number, const native_elements& sources) noexcept {
    guard_.protect(sends_.place_of(number), sources);
  }

  // Completions.

  /// Processes available completions, at most 16 without a hub. \returns true if there may be more.
  /// A caller has to process all of them before it sleeps, since only new completions wake it.
  VERBSPP_DATA_PATH bool collect() noexcept {
    if (sends_.needs_care()) [[unlikely]]
      return collect_with_care();
    ibv_wc completions[completions_per_poll];
    int filled = 0;
    {
      const one_thread only(users_);
      filled = connection_.poll(completions);
      // A program that posts one request at a time takes this path for each request, so only this
      // part is inline.
      if (filled == 1 && completions->status == IBV_WC_SUCCESS && !is_receive(completions->wr_id))
          [[likely]] {
        sends_.complete_plainly(completions->wr_id);
        return false;
      }
    }
    return complete_all(completions, filled);
  }
  /// Like `collect`, but if the only completion is a message for this inbox, this function may set
  /// `taken` instead of adding the message to the list of the inbox. Defined in inbox_state.hpp,
  /// like the next function.
  bool collect(inbox_state& inbox, pool_place*& taken) noexcept;
  /// Takes the next message for this inbox if one has arrived. Posts receives if that is due and
  /// there is a message.
  [[nodiscard]] pool_place* take_message(inbox_state& inbox) noexcept;
  /// Implements `channel::poll`. A continuation that it calls may destroy the channel.
  void poll() noexcept;
  /// Like `poll`, but processes only completions that the hub has already found.
  void poll_found() noexcept;
  /// True if no request is outstanding.
  [[nodiscard]] bool is_idle() const noexcept { return outstanding() == 0; }

  // Results, and the handles that take them.

  [[nodiscard]] VERBSPP_DATA_PATH bool is_done(const request& one) const noexcept {
    return one.is_receive() ? one.slot->is_done() : sends_.is_done(one.number);
  }
  /// True if the request is certain to have succeeded; false if it has not finished, or if its
  /// result has to be looked up.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_succeeded(const request& one) const noexcept {
    if (!one.is_receive()) return sends_.has_succeeded(one.number);
    return one.slot->is_done() && !sends_.is_suspect();
  }
  /// Counts a handle to a request, or another object that refers to the core.
  VERBSPP_DATA_PATH void open_handle() noexcept { ++handles_; }
  /// Adds an inbox, which counts as a handle.
  void open_inbox(inbox_state& inbox) noexcept;
  /// Undoes `open_inbox`. The receives of the inbox stay posted, and its state exists until they
  /// have finished. This may destroy the core.
  void drop_inbox(owned<inbox_state> dropped) noexcept;
  /// True if messages for the channel arrive in its hub's pool.
  [[nodiscard]] bool has_shared_messages() const noexcept;
  /// Makes `inbox` the one that gets the channel's messages from the hub's pool.
  [[nodiscard]] result<void> open_shared_inbox(inbox_state& inbox) noexcept;
  /// Moves the channel's messages in the hub's pool to the inbox of `open_shared_inbox`.
  /// \returns true if the pool currently has too few free places for the hub's receives
  bool take_shared_messages() noexcept;
  /// Removes a handle from the count. This may destroy the core.
  VERBSPP_DATA_PATH void drop_handle() noexcept {
    if (--handles_ == 0 && sends_.is_suspect()) [[unlikely]]
      go_if_unused();
  }
  /// Takes the result of a request, after waiting for it if necessary, and removes its handle from
  /// the count.
  template <class Memory = no_memory>
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> take(
      const request& one, call_limit limit, Memory&& owned = {}) noexcept {
    // The count is first, so that the compiler can drop it if the handle was just made.
    --handles_;
    if (!has_succeeded(one)) {
      collect();
      if (!has_succeeded(one)) [[unlikely]]
        return copy_of(take_with_care(one, limit), owned);
    }
    if (one.scope != 0) {
      scope_state* const scope = scopes_.innermost();
      if (scope == nullptr || scope->serial != one.scope) [[unlikely]]
        return copy_of(take_with_care(one, limit), owned);
      ++scope->taken;
    }
    return success_of(one);
  }
  /// Takes the result of a request without a scope. \pre `has_succeeded`
  [[nodiscard]] VERBSPP_DATA_PATH completed_work take_succeeded(const request& one) noexcept {
    --handles_;
    return success_of(one);
  }
  /// Waits for a request that was just posted, and that has no handle. \returns its result
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> wait_without_handle(
      const request& one, call_limit limit) noexcept {
    collect();
    if (!has_succeeded(one)) [[unlikely]] {
      no_memory none;
      return copy_of(take_with_care(one, limit), none);
    }
    return success_of(one);
  }
  /// Drops a handle to a request. Waits for the request if it borrows memory and has no scope.
  VERBSPP_DATA_PATH void drop(const request& one) noexcept {
    if (!one.is_receive() && !sends_.is_suspect() && (one.scope != 0 || sends_.is_done(one.number)))
        [[likely]]
      --handles_;
    else
      drop_with_care(one, false);
  }
  /// The general form of `drop`. If `must_wait` is true, it always waits for the request, unless
  /// the request has finished.
  /// \returns false if the device did not release the memory of the request
  bool drop_with_care(request one, bool must_wait) noexcept;

  /// True if this is the error of a request whose memory the device did not release.
  [[nodiscard]] static bool is_lost(const transport_error& failure) noexcept;
  /// Takes the memory from the program, and never frees it, if the failure `is_lost`. The object is
  /// then moved from.
  template <class Memory>
  VERBSPP_DATA_PATH static void keep_if_lost(const transport_error& failure,
                                             Memory& owned) noexcept {
    if (is_lost(failure)) [[unlikely]]
      never_free(std::move(owned));
  }

  // The calls that polls make (see `channel_polls`), and the alarms of a channel in a hub.

  /// Makes `poll` call the continuation when the request has finished.
  /// \returns false, without adding the continuation, if the request has already finished
  [[nodiscard]] VERBSPP_DATA_PATH bool continue_with(const request& one,
                                                     continuation& next) noexcept {
    if (is_done(one)) return false;
    if (one.is_receive())
      polls_.add_receive(next, receives_.number_of(*one.slot));
    else
      polls_.add_send(next, one.number);
    if (member_) [[unlikely]]
      pass_alarm();
    return true;
  }
  /// Like `continue_with`, for the request that was posted last, and a new continuation.
  VERBSPP_DATA_PATH void continue_last(const request& last, continuation& next) noexcept {
    if (last.is_receive()) return static_cast<void>(continue_with(last, next));
    polls_.append_send(next, last.number);
    if (next.has_limit() || polls_.needs_care_to_add()) [[unlikely]]
      begin_limit_of(next);
  }
  /// Makes `poll` call the continuation when its condition is met.
  void continue_when(condition& met) noexcept {
    polls_.add_condition(met);
    if (member_) pass_alarm();
  }
  /// Makes all conditions that depend on `subject` due, because `subject` is being destroyed.
  void end_subject(const void* subject) noexcept {
    polls_.end_subject(subject);
    if (member_) pass_alarm();
  }
  /// Calls the continuations of requests that have finished, and of conditions that are met. If
  /// more than 1,024 are due, some of them may be left to the next call, unless the channel is
  /// closed. This may destroy the channel.
  void run_continuations() noexcept;
  /// The root of the channel's failure; empty if the channel has not failed.
  [[nodiscard]] std::optional<error> root_of_failure() const noexcept {
    return connection_.failure() ? std::optional(connection_.failure()->root()) : std::nullopt;
  }
  /// Makes the hub report the channel at this time, unless the channel has an earlier alarm.
  /// \pre the channel is in a hub
  void set_alarm(wait_limit::time_point at) noexcept;
  /// Makes the hub report the channel when this descriptor, which the caller owns, becomes
  /// readable.
  /// \returns false if that is not possible \pre the channel is in a hub
  [[nodiscard]] bool report_events_of(int descriptor) noexcept;
  /// Makes the hub process events and alarms, as its waits do. \pre the channel is in a hub
  void take_hub_events() noexcept;

  // Scopes. An open scope counts as a handle.

  VERBSPP_DATA_PATH void open_scope(scope_state& scope) noexcept {
    if (state() == channel_state::empty) [[unlikely]] {
      scope.failed = 1;
      return;
    }
    scopes_.open(scope, sends_.next());
    open_handle();
  }
  VERBSPP_DATA_PATH void close_scope(scope_state& scope) noexcept {
    if (scope.serial == 0) [[unlikely]]
      return;
    scopes_.close(scope);
    drop_handle();
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool has_finished(const scope_state& scope) const noexcept {
    return (sends_.is_done(scope.sends_end - 1) || !scope.has_sends()) && scope.receives == 0;
  }
  /// Turns an open scope into a stream, whose requests may be unsignaled.
  void open_stream(scope_state& stream) noexcept;
  /// True if the last requests of the stream are unsignaled, and the send queue is open, so that
  /// `mark_end` has to be called.
  [[nodiscard]] bool has_open_end(const scope_state& stream) const noexcept {
    return stream.is_stream && sends_.signaled_end() < stream.sends_end && sends_.is_open();
  }
  /// Posts a signaled request behind the unsignaled requests at the end of a stream. Its completion
  /// shows that all of them have finished. Waits if the queue has no room.
  void mark_end(const scope_state& stream) noexcept;
  /// Waits until all requests of a scope have finished. If something else ends the wait, this
  /// function breaks the connection. \returns the reason in that case, unless `mark_end` has broken
  /// the connection; otherwise empty
  [[nodiscard]] std::optional<error> wait_for_all(const scope_state& scope) noexcept;

  // Waiting.

  /// Waits until the request has finished. If something else ends the wait, this function breaks
  /// the connection, which ends all requests.
  /// \returns the reason in that case; otherwise empty
  [[nodiscard]] std::optional<error> wait_for(request one, call_limit limit) noexcept;
  /// Waits until the send queue has room for `wanted` requests. If something else ends the wait,
  /// this function breaks the connection.
  [[nodiscard]] result<void> wait_for_send_room(std::uint32_t wanted, call_limit limit) noexcept;
  /// Waits until the channel has news (see `has_news`), or another event ends the wait. Reaching
  /// the limit does not break the connection.
  [[nodiscard]] result<wait_end> wait_for_news(const wait_limit& limit,
                                               int file_descriptor) noexcept;
  /// Waits until `look` returns `met`, or another event ends the wait. Reaching the limit
  /// does not break the connection.
  /// \returns `limit` if the limit was reached; `completions` if `look` returned `met`, or if the
  /// connection broke
  [[nodiscard]] result<wait_end> wait_for_message(const looking& look,
                                                  const wait_limit& limit) noexcept;
  /// Sets the file descriptor that is watched during waits. If the event for which it is watched
  /// occurs, the wait ends and the connection breaks.
  void watch(const watched_descriptor& watched) noexcept;
  /// Watches a socket, and notifies the peer over it when the channel is closed. Replaces the
  /// previous socket. Either socket may be empty.
  void tie(tied_socket&& socket) noexcept;
  /// Makes the hub hold back the channel's arrivals until `release_arrivals` is called or, if the
  /// hub has a table of clients, until the channel is added to it. A no-op if the channel is in no
  /// hub.
  void hold_arrivals() const noexcept;
  void release_arrivals() const noexcept;
  /// Requests an event for the next completion, so that an event loop can sleep until then.
  /// \returns true if the channel has news already
  [[nodiscard]] result<bool> ask_to_be_woken() noexcept;
  /// Implements `channel::deadline`.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept;

  // Connecting, renewing and ending the connection.

  [[nodiscard]] result<void> connect(const endpoint& remote) noexcept;
  [[nodiscard]] result<void> connect(const managed_attributes& by) noexcept;
  /// Closes the connection, calls the continuations that wait for it, and prepares the next one.
  /// \returns the new endpoint
  [[nodiscard]] result<endpoint> renew(const wait_limit& limit) noexcept;
  [[nodiscard]] result<void> close(const wait_limit& limit) noexcept;
  /// Breaks the connection: moves the queue pair to ERR and collects all outstanding requests. If
  /// the device does not complete them in time, this function destroys the queue pair.
  void break_off(const error& root, std::optional<wait_end> by = {}) noexcept;
  /// Collects all outstanding requests, as `break_off` does, if the connection is broken; otherwise
  /// a no-op.
  void collect_broken() noexcept;
  /// Breaks the connection and destroys the queue pair, so that the peer can no longer access
  /// memory.
  void end_connection(const error& root) noexcept;
  /// Closes the connection of a channel that is being destroyed. The core is destroyed with its
  /// last handle.
  void abandon() noexcept;

  // Errors.

  [[nodiscard]] static error refusal_of_empty(const char* operation) noexcept;
  /// The error for a call whose limit was reached before it posted anything.
  [[nodiscard]] static error ended_before(const wait_limit& limit) noexcept;

 private:
  static constexpr int completions_per_poll = 16;

  explicit channel_core(const channel_settings& settings) noexcept;
  ~channel_core();

  template <class Operation>
  static constexpr bool is_target = std::is_same_v<Operation, read_operation> ||
                                    std::is_same_v<Operation, compare_and_swap_operation> ||
                                    std::is_same_v<Operation, fetch_and_add_operation>;

  /// True if the library accepts the operation on the channel's transport. On UC, it accepts no
  /// fences, no operations with a response, and no invalidations.
  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH bool carries(const Operation& operation) const noexcept {
    using traits = operation_traits<Operation>;
    return (traits::carried_by(transport::uc) &&
            (traits::flags(operation) & IBV_SEND_FENCE) == 0) ||
           connection_.type() == transport::rc;
  }
  /// True if the device accesses none of the program's memory once a request with these elements
  /// has been posted: there are no elements, or their bytes were copied into the request.
  [[nodiscard]] VERBSPP_DATA_PATH static bool has_no_memory(
      const native_elements& elements) noexcept {
    return elements.size == 0 || elements.is_inline;
  }

  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH result<void> post_extended(const Operation& operation,
                                                             work_tag tag) noexcept {
    if (connection_.native_extended() == nullptr) [[unlikely]]
      return not_extended(operation_traits<Operation>::name);
    extended_posting<transport::rc, ibv_qp_ex> call(connection_.native_extended());
    call.add(operation, tag);
    const batch_result posted = call.post(connection_.capacities(), [] {});
    if (!posted.has_value()) [[unlikely]]
      return posted.assume_error().cause();
    return success();
  }

  /// The limit of a wait for room.
  [[nodiscard]] VERBSPP_DATA_PATH static call_limit limit_of(const posting_terms& terms) noexcept {
    return terms.scope != nullptr ? terms.scope->limit : terms.limit;
  }
  VERBSPP_DATA_PATH static void note_scope(request& posted, const posting_terms& terms) noexcept {
    if (terms.scope == nullptr) return;
    posted.scope = terms.scope->serial % scope_serials;
    if (terms.has_handle) ++terms.scope->posted;
  }

  /// Returns the result of a finished request, which is meaningful only if the request has
  /// succeeded. If the request is a receive, this also frees its slot.
  [[nodiscard]] VERBSPP_DATA_PATH completed_work success_of(const request& one) noexcept {
    if (!one.is_receive()) return {number_of(one.operation), one.bytes, 0, 0};
    const completed_work done = one.slot->work();
    receives_.release(*one.slot);
    return done;
  }
  /// Calls `keep_if_lost` after a failure. Copies the result of a rare call member by member, so
  /// that the caller's result can stay in registers. Otherwise, the compiler would elide the copy,
  /// and pass the address of the caller's result to that call, which would force the result into
  /// memory.
  template <class Memory>
  [[nodiscard]] VERBSPP_DATA_PATH static transport_result<completed_work> copy_of(
      const transport_result<completed_work>& rare, Memory& owned) noexcept {
    if (rare.has_value()) return rare.assume_value();
    if constexpr (!std::is_same_v<Memory, no_memory>) keep_if_lost(rare.assume_error(), owned);
    return rare.assume_error();
  }

  // Most of the following functions are out of line, because they are rarely called.

  // Results. These functions take requests by value, because an object whose address is passed to a
  // call cannot stay in registers.
  /// \pre no handle of the request is counted
  [[nodiscard, gnu::noinline]] transport_result<completed_work> take_with_care(
      request one, call_limit limit) noexcept;
  [[nodiscard]] std::optional<work_error> failure_of(request one) noexcept;
  [[nodiscard]] bool has_lost_memory(const std::optional<work_error>& failure) const noexcept;
  /// Called when `handles_` or `callers_` may have become 0 while results are suspect. Destroys the
  /// core if the channel was destroyed, and both are 0.
  void go_if_unused() noexcept;
  /// Subtracts one from `callers_`. This may destroy the core.
  VERBSPP_DATA_PATH void end_caller() noexcept {
    --callers_;
    if (sends_.is_suspect()) [[unlikely]]
      go_if_unused();
  }

  // Completions.
  bool collect_with_care() noexcept;
  /// Like `collect_with_care`, for a channel in a hub, for guarded memory, or for suspect results.
  [[gnu::noinline]] bool collect_counted() noexcept;
  void collect_from_hub() noexcept;
  [[nodiscard]] bool take_found() noexcept;
  void take_hang_up() noexcept;
  void notice_end() noexcept;
  [[gnu::noinline]] bool complete_all(const ibv_wc* completions, int filled) noexcept;
  /// Polls once, and returns the message for this inbox if it is the only completion. Otherwise,
  /// processes the completions, and sets `may_poll` to true if there may be more of them. Defined
  /// in inbox_state.hpp. \pre `sends_.needs_care` is false, and the list of the inbox is empty
  [[nodiscard]] pool_place* collect_message(inbox_state& inbox, bool& may_poll) noexcept;
  void complete(const ibv_wc& completion) noexcept;
  void complete_receive(const ibv_wc& completion) noexcept;
  /// Records the completion of the inbox's next receive, but does not tell the tools that watch
  /// memory. Defined in inbox_state.hpp. \returns the place of the message (see
  /// `inbox_state::take_posted`)
  [[nodiscard]] pool_place& receive_message(inbox_state& inbox, const ibv_wc& completion) noexcept;
  void complete_failed(const ibv_wc& completion) noexcept;
  void complete(receive_slot& slot) noexcept { receives_.complete(slot, place_of(slot), guard_); }
  void fail_send(std::uint64_t number, work_operation operation, std::uint32_t status,
                 std::uint32_t vendor_code) noexcept;
  void fail_receive(receive_slot& slot, std::uint32_t status, std::uint32_t vendor_code) noexcept;
  void fail_receive(inbox_state& inbox, std::uint32_t status, std::uint32_t vendor_code) noexcept;
  void fail_shared_receive(const ibv_wc& completion) noexcept;
  void note_failure(const work_error& failure, scope_state* scope) noexcept;
  void lose_queue(int returned) noexcept;
  /// Handles the usual case of a completion: the oldest request in the send queue has succeeded.
  /// \returns false, and does nothing, otherwise \pre as for `send_window::complete_next`
  [[nodiscard]] VERBSPP_DATA_PATH bool complete_next(const ibv_wc& completion) noexcept {
    return !is_receive(completion.wr_id) &&
           sends_.complete_next(completion.wr_id, number_of(completion.status));
  }
  /// Like `collect`, for the case that requests keep memory, which this function releases.
  /// \pre `needs_care_to_collect_` is false, and results are not suspect
  VERBSPP_DATA_PATH bool collect_own() noexcept {
    ibv_wc completions[completions_per_poll];
    int filled = 0;
    {
      const one_thread only(users_);
      filled = connection_.poll(completions);
      // `collect` has a similar path, but only for requests that keep no memory alive; the request
      // here may keep memory alive.
      if (filled == 1 && !sends_.is_suspect() && complete_next(*completions)) [[likely]]
        return false;
    }
    return filled != 0 && complete_all(completions, filled);
  }

  // Polls.
  [[gnu::noinline]] void poll_with_care() noexcept;
  [[gnu::noinline]] void poll_rest(int filled, const ibv_wc* end) noexcept;
  [[gnu::noinline]] void call_more() noexcept;
  [[nodiscard]] continuation* take_due() noexcept;
  [[gnu::noinline]] void call_due(continuation* due, bool checks_alarm) noexcept;
  [[gnu::noinline]] void call_all(continuation* due) noexcept;
  [[gnu::cold, gnu::noinline]] void call_late() noexcept;
  void give_up_expired() noexcept;
  /// Wakes the thread or event loop that waits for the channel or its hub. Any thread may call
  /// this.
  void wake_poller() const noexcept;
  void need_care_to_collect() noexcept;
  /// Makes each result be looked up (see `send_window::is_suspect`).
  void suspect_results() noexcept;
  /// Begins the limit of a continuation that was appended.
  [[gnu::noinline]] void begin_limit_of(continuation& one) noexcept;
  /// Asks the hub to report the channel when the earliest limit of the channel's continuations is
  /// reached.
  void pass_alarm() noexcept { set_alarm(polls_.alarm()); }

  // The connection's life.
  [[nodiscard]] result<void> prepare() noexcept;
  /// Prepares the next connection, unless a continuation has done so, or has destroyed the channel.
  [[nodiscard]] result<endpoint> prepare_next() noexcept;
  [[nodiscard]] result<void> allocate() noexcept;
  [[nodiscard]] result<void> settle(const result<void>& connected) noexcept;
  void fail(const error& root, bool is_certain, std::optional<wait_end> by = {}) noexcept;
  void collect_until(const wait_limit& limit) noexcept;
  void collect_tail() noexcept;
  void destroy_queue_pair() noexcept;
  [[nodiscard]] result<void> enter_hub() noexcept;
  void leave_hub() noexcept;

  // Waits.
  /// The number of requests that have ever completed, plus 1.
  [[nodiscard]] std::uint64_t completed() const noexcept {
    return sends_.completed() + receives_.completed();
  }
  /// The number of completed requests that are not news: those that a wait has reported, or all of
  /// them if no request is outstanding.
  [[nodiscard]] std::uint64_t known() const noexcept { return is_idle() ? completed() : known_; }
  /// True if the channel has news for the program: a handle's result or an inbox's message is
  /// available and has not been taken, the channel is broken, more requests than `known` have
  /// completed, another thread has handed over a call, or a stop was requested for a continuation
  /// through a token with callbacks.
  [[nodiscard]] bool has_news(std::uint64_t known) const noexcept;
  template <class Done>
  [[nodiscard]] std::optional<error> wait_until(Done done, call_limit limit) noexcept;
  /// The error for an event that has ended a wait.
  /// \param is_default true if `until` is the channel's default limit
  [[nodiscard]] error reason_of(wait_end end, const wait_limit& until,
                                bool is_default = false) noexcept;
  error give_up(wait_end end, const error& why) noexcept;
  /// The error for a wait that was ended by its limit. Contains the number of outstanding requests.
  [[nodiscard]] error ended_by(const wait_limit& limit, bool is_default) const noexcept;
  /// The error for a wait that was ended by the watched descriptor.
  [[nodiscard]] error ended_by_descriptor() const noexcept;
  /// Returns the corresponding error for a dropped handle if `ended` was made by `ended_by`;
  /// otherwise returns nothing.
  [[nodiscard]] static std::optional<error> ended_by_drop(const error& ended) noexcept;

  // Room in the queues, and errors of requests that are refused.
  [[nodiscard]] result<void> make_send_room(const char* operation, bool waits,
                                            call_limit limit) noexcept;
  [[nodiscard]] result<void> make_receive_room(bool waits, call_limit limit) noexcept;
  /// The error for an operation that the channel's transport does not support.
  [[nodiscard]] error uncarried(const char* operation, bool is_for_its_fence) const noexcept;
  [[nodiscard]] static error not_extended(const char* operation) noexcept;

  // Guarded memory. In the guard, the places for receives come after those for the send queue.
  [[nodiscard]] std::size_t place_of(const receive_slot& slot) const noexcept {
    return sends_.places() + receive_slots::index_of(slot);
  }
  void hide(receive_slot& slot, const native_elements& elements) noexcept;
  void hide(std::uint64_t number, const native_elements& elements) noexcept;
  void hide_batch(std::uint32_t count) noexcept;

  send_window sends_{};
  channel_connection connection_;
  std::uint32_t handles_ = 0;  ///< handles, inboxes, and open scopes
  inbox_list inboxes_{};
  /// The channel is in a hub, or its memory is or was guarded or lost.
  bool needs_care_to_collect_ = false;
  unsigned users_ = 0;       ///< threads inside the channel's functions, for assertions
  std::uint64_t known_ = 0;  ///< the number of completed requests that waits have reported
  open_scopes scopes_{};
  channel_polls polls_;
  std::uint32_t callers_ = 0;  ///< running calls of functions that call continuations
  receive_slots receives_{};
  memory_guard guard_{};
  owned<lease_book> leases_{};
  owned<channel_member> member_{};  ///< null without a hub
  channel_id id_{};
  bool is_orphan_ = false;  ///< the channel was destroyed
};

}  // namespace verbspp::detail
