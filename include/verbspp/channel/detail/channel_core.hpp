// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a channel is made of: slots for the requests in flight, and how they are posted, found
/// finished, and given up.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/trust_driver.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel_failure.hpp>
#include <verbspp/channel/channel_id.hpp>
#include <verbspp/channel/detail/hub_reference.hpp>
#include <verbspp/channel/detail/work_slot.hpp>
#include <verbspp/channel/waiting.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/queue_pair_data.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/work/batch.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace verbspp::detail {

struct hub_member;
class lease_book;
class looking;

/// What the builder of a channel collects besides the queue pair's parameters.
struct channel_settings {
  hub_reference hub{};  ///< first, since it goes last: it wants to be the last to have the queues
  transport type = transport::rc;
  queue_pair_settings queue_pair{};
  std::chrono::nanoseconds default_limit = std::chrono::seconds(30);
  wait_mode waiting = wait_mode::spin();
};

inline constexpr unsigned slot_index_bits = 20;
inline constexpr std::uint32_t no_slot = (1U << slot_index_bits) - 1;
inline constexpr std::uint64_t one_use = std::uint64_t{1} << slot_index_bits;

/// A `wr_id` has the operation in its highest byte, since failed completions don't tell it; that of
/// a receive is the sign. Below is the slot's id, or the request's number, which never gets as
/// large.
inline constexpr unsigned operation_at = 56;
inline constexpr std::uint64_t below_operation = (std::uint64_t{1} << operation_at) - 1;
[[nodiscard]] constexpr std::uint64_t wr_id_of(work_operation operation,
                                               std::uint64_t id) noexcept {
  return static_cast<std::uint64_t>(operation) << operation_at | id;
}
/// In the place of the operation, for the shared receives of a hub.
inline constexpr std::uint64_t shared_receive = 0xff;
[[nodiscard]] constexpr bool is_shared_receive(std::uint64_t wr_id) noexcept {
  return wr_id >> operation_at == shared_receive;
}
static_assert(static_cast<std::uint64_t>(work_operation::receive) == 0x80);
static_assert(static_cast<std::uint64_t>(work_operation::bind_memory_window) < 0x80);

/// Asserts, in debug builds, that one thread at a time is in a channel.
class one_thread {
 public:
  VERBSPP_DATA_PATH explicit one_thread([[maybe_unused]] unsigned& users) noexcept
#ifndef NDEBUG
      : users_(users) {
    [[maybe_unused]] const unsigned others = __atomic_fetch_add(&users_, 1U, __ATOMIC_ACQUIRE);
    assert(others == 0 && "two threads use a channel, or its handles, at once");
  }
#else
  {
  }
#endif
  one_thread(const one_thread&) = delete;
  one_thread& operator=(const one_thread&) = delete;
#ifndef NDEBUG
  ~one_thread() { __atomic_fetch_sub(&users_, 1U, __ATOMIC_RELEASE); }

 private:
  unsigned& users_;
#endif
};

/// A request that does nothing but complete, and so tells that all before it have: a write of no
/// bytes, which needs no memory of the peer's.
struct marker_operation {};

}  // namespace verbspp::detail

namespace verbspp {
template <>
struct operation_traits<detail::marker_operation> : detail::usual_operation {
  static constexpr const char* name = "ibv_post_send (RDMA write of no bytes)";
  static constexpr work_operation completes_as = work_operation::rdma_write;
  [[nodiscard]] static constexpr bool carried_by(transport type) noexcept {
    return type == transport::rc || type == transport::uc;
  }
  [[nodiscard]] static detail::native_elements elements(
      const detail::marker_operation& /*operation*/) noexcept {
    return {};
  }
  [[nodiscard]] static unsigned flags(const detail::marker_operation& /*operation*/) noexcept {
    return 0;
  }
  static void describe(ibv_send_wr& native,
                       const detail::marker_operation& /*operation*/) noexcept {
    native.opcode = IBV_WR_RDMA_WRITE;
    native.wr.rdma.remote_addr = 0;
    native.wr.rdma.rkey = 0;
  }
};
}  // namespace verbspp

namespace verbspp::detail {

/// Which requests of the send queue a connection has lost, for handles that still exist.
struct lost_sends {
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::uint64_t first = none;
  std::uint64_t end = none;
  std::uint64_t root = none;  ///< the one that failed by itself; the others were flushed
  std::uint32_t status = 0;
  std::uint32_t vendor_code = 0;
  std::uint32_t queue_pair = 0;
  owned<lost_sends> earlier{};
};

/// What posting does where the queue is full.
struct room_wait {
  bool is_wanted = false;
  const wait_limit* limit = nullptr;  ///< null: the channel's default
};

/// The state of a channel, at a place of its own: handles and scopes point to it. It outlives the
/// channel while there are handles.
///
/// Requests of the send queue finish in the order in which they were posted, so each is a number:
/// those below `completed_` have finished, whether they were signaled or not. What a success tells,
/// its handle knows. A failure ends the connection, so that it is enough to know from which number
/// on requests have failed. Only what belongs to a scope, or keeps memory, has a record.
///
/// Receives tell something, and have slots, which their handles hold.
class channel_core {
 public:
  [[nodiscard]] static result<channel_core*> create(const channel_settings& settings) noexcept;
  /// What an empty channel has, which refuses everything.
  [[nodiscard]] static channel_core& empty() noexcept;
  channel_core(const channel_core&) = delete;
  channel_core& operator=(const channel_core&) = delete;

  /// The channel is gone: gives up what is outstanding, and itself once the last handle is gone.
  void abandon() noexcept;

  // Out of line, since it happens rarely.

  [[nodiscard]] result<void> connect(const endpoint& remote) noexcept;
  [[nodiscard]] result<void> connect(const managed_attributes& by) noexcept;
  /// Gives up what is left of the former connection, and prepares the next one.
  [[nodiscard]] result<void> renew(const wait_limit& limit) noexcept;
  [[nodiscard]] result<void> close(const wait_limit& limit) noexcept;
  /// Ends the connection: ERR, and takes back all that is outstanding; if the device does not give
  /// it in time, by destroying the queue pair. \pre no failure yet, or a request's
  void break_off(const error& root) noexcept;

  /// The same, and destroys the queue pair, so that nothing of the peer's lands any more.
  void end_connection(const error& root) noexcept;

  /// Waits until the request has finished, which it has then in any case.
  /// \returns the failure of the wait, if the limit ended it
  [[nodiscard]] std::optional<error> wait_for(request one, const wait_limit* limit) noexcept;
  /// The result of a request, waited for, where that takes more than to look at a number. A call,
  /// for which what it is told is copied: what is given by its address is in memory everywhere.
  [[nodiscard, gnu::noinline]] transport_result<completed_work> take_with_care(
      request one, const wait_limit* limit) noexcept;
  /// The same as `wait_for` for all of a scope.
  [[nodiscard]] std::optional<error> wait_for_all(const scope_state& scope) noexcept;
  /// The same for room in a queue, for so many requests.
  [[nodiscard]] result<void> wait_for_send_room(std::uint32_t wanted,
                                                const wait_limit* limit) noexcept;
  [[nodiscard]] result<void> wait_for_receive_room(const wait_limit* limit) noexcept;
  /// Waits until there were completions, or for what else ends a wait; nothing is given up at the
  /// limit.
  [[nodiscard]] result<wait_end> wait_for_news(const wait_limit& limit,
                                               int file_descriptor) noexcept;
  /// Waits for what `look` sees, and for what else ends a wait; nothing is given up at the limit.
  /// \returns `completions` if there is something to see, which may be that the channel broke
  [[nodiscard]] result<wait_end> wait_for_message(const looking& look,
                                                  const wait_limit& limit) noexcept;
  /// Asks for an event of the next completion, for event loops. \returns whether some came
  /// meanwhile
  [[nodiscard]] result<bool> ask_to_be_woken() noexcept;
  /// Reads the events that were asked for.
  void stay_awake() noexcept;
  /// A descriptor of the program's whose being readable ends waits, and the connection; -1: none.
  void watch(int file_descriptor) noexcept { watched_descriptor_ = file_descriptor; }
  /// Has the unsignaled requests at the end of a stream followed by a signaled one.
  void mark_end(const scope_state& stream) noexcept;
  /// Why `operation` is refused.
  [[nodiscard]] error refusal(const char* operation) const noexcept;
  [[nodiscard]] error no_room(const char* operation, bool is_send) const noexcept;
  [[nodiscard]] static error refusal_of_empty(const char* operation) noexcept;
  /// Nothing was posted, since the limit had passed.
  [[nodiscard]] static error ended_before(const wait_limit& limit) noexcept;
  /// What outstanding work a limit has ended.
  [[nodiscard]] error ended_by(const wait_limit& limit) const noexcept;

  /// Posts one request of the send queue, for whoever counts it by `open_handle`, and tells a
  /// default `posted` of it, which is no part of the result so that it can be in registers. If the
  /// request keeps memory, that is let go if this fails, too. Where the queue is full, it waits for
  /// room if that is asked for.
  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH result<void> post(const Operation& operation, request& posted,
                                                    scope_state* scope, bool signaled = true,
                                                    kept_memory memory = {},
                                                    room_wait room = {}) noexcept {
    using traits = operation_traits<Operation>;
    if constexpr (!traits::carried_by(transport::uc))
      if (type_ != transport::rc) [[unlikely]]
        return refused(refused_on_uc(traits::name, not_carried(traits::name)), memory);
    if ((traits::flags(operation) & IBV_SEND_FENCE) != 0 && type_ != transport::rc) [[unlikely]]
      return refused(refused_on_uc(traits::name, no_fence(traits::name)), memory);
    if (next_send_ >= send_end_) [[unlikely]] {
      if (!room.is_wanted) {
        if (!find_send_room()) return refused(no_send(traits::name), memory);
      } else if (const result<void> waited = wait_for_send_room(1, room.limit);
                 !waited.has_value()) {
        return refused(waited.assume_error(), memory);
      }
    }
    const one_thread only(users_);
    const std::uint64_t number = next_send_;
    VERBSPP_TRYV(post_native(
        operation, {.id = send_id<traits::completes_as>(number), .signaled = signaled}, memory));
    next_send_ = number + 1;
    if (scope != nullptr) note_run(*scope, number, 1);
    if (memory.keeper != nullptr) [[unlikely]]
      record(number, memory);
    if constexpr (is_target<Operation>)
      if (watches_) [[unlikely]]
        watch(number, traits::elements(operation));
    posted.number = number;
    posted.operation = traits::completes_as;
    if constexpr (traits::completes_as == work_operation::rdma_read)
      posted.bytes = static_cast<std::uint32_t>(operation.elements.total_length());
    if (scope != nullptr) posted.scope = scope->serial % scope_serials;
    posted.keeps = memory.keeper != nullptr || has_no_memory(traits::elements(operation));
    return success();
  }

  /// The same of the receive queue. The slot of one without a handle is free when it has finished.
  [[nodiscard]] VERBSPP_DATA_PATH result<void> post(const receive_operation& operation,
                                                    request& posted, scope_state* scope,
                                                    bool is_held = true, kept_memory memory = {},
                                                    room_wait room = {}) noexcept {
    if (room.is_wanted && receive_room_ == 0) [[unlikely]]
      if (const result<void> waited = wait_for_receive_room(room.limit); !waited.has_value())
        return refused(waited.assume_error(), memory);
    if (!may_receive_) [[unlikely]]
      return refused(refusal(posting_receive), memory);
    if (receive_room_ == 0 || free_ == no_slot) [[unlikely]] {
      collect();
      if (!may_receive_) return refused(refusal(posting_receive), memory);
      if (receive_room_ == 0 || free_ == no_slot)
        return refused(no_room(posting_receive, false), memory);
    }
    const one_thread only(users_);
    receive_slot& slot = slots_[free_];
    const result<void> made = post_one_receive(
        operation, {.id = wr_id_of(work_operation::receive, slot.id)}, posting_receive,
        capacities_.max_receive_elements,
        [this](auto* list, auto* rejected) { return ibv_post_recv(native_, list, rejected); });
    if (!made.has_value()) [[unlikely]]
      return refused(made.assume_error(), memory);
    free_ = slot.next;
    --receive_room_;
    slot.is = receive_slot::state::posted;
    slot.notes = is_held ? 0 : receive_slot::unheld;
    slot.scope = scope;
    if (scope != nullptr) {
      slot.notes |= receive_slot::in_scope;
      ++scope->receives;
    }
    if (memory.keeper != nullptr) [[unlikely]] {
      slot.memory = memory;
      slot.notes |= receive_slot::keeping;
    }
    if (watches_) [[unlikely]]
      watch(slot, native_of(operation.elements));
    posted.slot = &slot;
    posted.operation = work_operation::receive;
    if (scope != nullptr) posted.scope = scope->serial % scope_serials;
    posted.keeps = memory.keeper != nullptr || has_no_memory(native_of(operation.elements));
    return success();
  }

  // A batch, whose requests are posted together when it is complete.

  /// Whether a send queue's operation may be posted, but for the room.
  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH std::optional<error> objection(
      const Operation& operation) const noexcept {
    using traits = operation_traits<Operation>;
    if (!may_send_) [[unlikely]]
      return refusal(traits::name);
    if constexpr (!traits::carried_by(transport::uc))
      if (type_ != transport::rc) [[unlikely]]
        return not_carried(traits::name);
    if ((traits::flags(operation) & IBV_SEND_FENCE) != 0 && type_ != transport::rc) [[unlikely]]
      return no_fence(traits::name);
    if (!is_sound<transport::rc>(operation)) [[unlikely]]
      return unsoundness<transport::rc>(operation);
    return std::nullopt;
  }
  /// The number of the next request of the send queue.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t next_send() const noexcept { return next_send_; }
  /// The `wr_id` of the request of that number.
  template <work_operation Operation>
  [[nodiscard]] VERBSPP_DATA_PATH static std::uint64_t send_id(std::uint64_t number) noexcept {
    return wr_id_of(Operation, number);
  }
  /// Whether what the device writes to is hidden from the program meanwhile.
  [[nodiscard]] VERBSPP_DATA_PATH bool watches() const noexcept { return watches_; }
  /// Notes what the requests, the first of which will have that number, will have the device write
  /// to.
  void remember_batch(std::uint64_t first, const ibv_send_wr* requests,
                      std::uint32_t count) noexcept;
  /// Memory that the request of that number owns or shares, which was just posted to the send
  /// queue, and is read by the device, is not to be written meanwhile.
  void guard(std::uint64_t number, const native_elements& sources) noexcept;
  /// So many requests of a scope, all signaled, were posted to the send queue.
  VERBSPP_DATA_PATH void commit(std::uint32_t posted, scope_state& scope) noexcept {
    if (posted == 0) return;
    const std::uint64_t first = next_send_;
    note_run(scope, first, posted);
    if (watches_) [[unlikely]]
      hide_batch(first, posted);
    next_send_ = first + posted;
  }

  /// A slot for a receive that is to be posted; null if there is none.
  [[nodiscard]] VERBSPP_DATA_PATH receive_slot* reserve_receive() noexcept {
    if (free_ == no_slot) [[unlikely]]
      return nullptr;
    receive_slot& slot = slots_[free_];
    free_ = slot.next;
    return &slot;
  }
  /// The receive was posted, and fills that element; it counts as one with a handle.
  VERBSPP_DATA_PATH void commit_receive(receive_slot& slot, const ibv_sge& filled) noexcept {
    --receive_room_;
    slot.is = receive_slot::state::posted;
    slot.notes = 0;
    slot.scope = nullptr;
    open_handle();
    if (watches_) [[unlikely]]
      watch(slot, {.single = filled, .range = nullptr, .size = 1});
  }
  /// It was not posted.
  VERBSPP_DATA_PATH void give_back(receive_slot& slot) noexcept { release(slot); }
  /// The receive, which was posted, keeps that memory from now on.
  VERBSPP_DATA_PATH void keep(receive_slot& slot, const kept_memory& memory) noexcept {
    slot.memory = memory;
    slot.notes |= receive_slot::keeping;
  }
  /// The same of a request that has not been found finished.
  VERBSPP_DATA_PATH void keep(request& posted, const kept_memory& memory) noexcept {
    posted.keeps = true;
    if (posted.operation == work_operation::receive) return keep(*posted.slot, memory);
    record(posted.number, memory);
  }
  /// Whether the device has never let go of the memory of a receive that is done.
  [[nodiscard]] static bool has_lost(const receive_slot& slot) noexcept {
    return (slot.notes & receive_slot::lost) != 0;
  }

  /// Takes the completions that are there.
  VERBSPP_DATA_PATH void collect() noexcept {
    if (rarities_ != 0) [[unlikely]]
      return collect_with_care();
    ibv_wc completions[16];
    int filled = 0;
    {
      const one_thread only(users_);
      filled = poll_native(completions);
      // What is inline is what a program waits for that posts one request at a time: there, every
      // instruction counts for each request.
      if (filled == 1 && completions->status == IBV_WC_SUCCESS && !is_receive(completions->wr_id))
          [[likely]]
        return take_sends_until(completions->wr_id, true);
    }
    take_others(completions, filled);
  }

  // Handles.

  /// There is a handle of that request.
  VERBSPP_DATA_PATH void open_handle() noexcept { ++handles_; }
  /// It is gone; so may be the core.
  VERBSPP_DATA_PATH void drop_handle() noexcept {
    if (--handles_ == 0 && needs_attention_) [[unlikely]]
      go_if_unused();
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_done(const request& one) const noexcept {
    if (one.operation == work_operation::receive) return one.slot->is == receive_slot::state::done;
    return one.number < completed_;
  }
  /// Whether it is done, and nothing more is to be known than that it has succeeded.
  [[nodiscard]] VERBSPP_DATA_PATH bool has_succeeded(const request& one) const noexcept {
    if (one.operation != work_operation::receive) return one.number < succeeded_;
    return one.slot->is == receive_slot::state::done && !needs_attention_;
  }
  /// What came of a request that is done; its handle is gone then.
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> take_result(
      const request& one) noexcept {
    if (!has_succeeded(one)) [[unlikely]]
      return copy_of(take_with_attention(one, false));
    return take_success(one);
  }
  /// The same of one that has succeeded.
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> take_success(
      const request& one) noexcept {
    if (one.scope != 0) {
      if (innermost_ == nullptr || innermost_->serial != one.scope) [[unlikely]]
        return copy_of(take_with_attention(one, false));
      ++innermost_->taken;
    }
    --handles_;
    return success_of(one);
  }
  /// The same of one that may have to be waited for.
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> wait_and_take(
      const request& one, const wait_limit* limit) noexcept {
    if (!has_succeeded(one)) {
      collect();
      if (!has_succeeded(one)) [[unlikely]]
        return copy_of(take_with_care(one, limit));
    }
    return take_success(one);
  }
  /// The same of one that was just posted, and has no handle.
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> wait_without_handle(
      const request& one, const wait_limit* limit) noexcept {
    collect();
    if (!has_succeeded(one)) [[unlikely]] {
      open_handle();
      return copy_of(take_with_care(one, limit));
    }
    return success_of(one);
  }
  /// What a request without a failure tells. The slot of a receive is free then.
  [[nodiscard]] VERBSPP_DATA_PATH completed_work success_of(const request& one) noexcept {
    if (one.operation != work_operation::receive)
      return completed_work(number_of(one.operation), one.bytes, 0, 0);
    const receive_slot& slot = *one.slot;
    const completed_work done(slot.opcode, slot.byte_count, slot.flags, slot.immediate);
    release(*one.slot);
    return done;
  }
  /// The handle of the request goes, without having taken the result. The memory of one that is not
  /// of a scope is the program's then, or `must_wait`.
  VERBSPP_DATA_PATH void leave(const request& one, bool must_wait) noexcept {
    if (one.operation != work_operation::receive && !needs_attention_ &&
        (((one.scope != 0 || one.keeps) && !must_wait) || one.number < completed_)) [[likely]]
      --handles_;
    else
      leave_rarely(one, must_wait);
  }

  // Scopes, of which the innermost one is looked at first. An open scope needs the core as a handle
  // does.

  VERBSPP_DATA_PATH void open_scope(scope_state& scope) noexcept {
    if (state_ == channel_state::empty) [[unlikely]]
      return;
    scopes_ = (scopes_ + 1) % scope_serials;
    if (scopes_ == 0) [[unlikely]]
      scopes_ = 1;
    scope.serial = scopes_;
    scope.outer = innermost_;
    innermost_ = &scope;
    scope.run_first = scope.sends_end = next_send_;
    ++handles_;
  }
  VERBSPP_DATA_PATH void close_scope(scope_state& scope) noexcept {
    if (innermost_ == &scope) [[likely]]
      innermost_ = scope.outer;
    else
      close_outer_scope(scope);
    if (scope.serial != 0) drop_handle();
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool has_finished(const scope_state& scope) const noexcept {
    return (scope.sends_end <= completed_ || scope.sends_end == scope.run_first) &&
           scope.receives == 0;
  }

  // What others ask of the channel.

  [[nodiscard]] channel_state state() const noexcept { return state_; }
  /// Which one of a hub it is.
  [[nodiscard]] channel_id id() const noexcept;
  [[nodiscard]] const std::optional<channel_failure>& failure() const noexcept { return failure_; }
  [[nodiscard]] const endpoint& local() const noexcept { return local_; }
  [[nodiscard]] const queue_pair_capacities& capacities() const noexcept { return capacities_; }
  [[nodiscard]] ibv_qp* native() const noexcept { return native_; }
  [[nodiscard]] const completion_queue& queue() const noexcept {
    return *settings_.queue_pair.send_queue;
  }
  [[nodiscard]] const protection_domain& domain() const noexcept {
    return *settings_.queue_pair.domain;
  }
  [[nodiscard]] transport type() const noexcept { return type_; }
  /// What peers may do through the queue pair.
  [[nodiscard]] access_flags access() const noexcept {
    return settings_.queue_pair.connection.access;
  }
  /// Null until there was one.
  [[nodiscard]] lease_book*& leases() noexcept { return leases_; }
  [[nodiscard]] std::uint32_t sends_outstanding() const noexcept {
    return static_cast<std::uint32_t>(next_send_ - completed_);
  }
  [[nodiscard]] std::uint32_t receives_outstanding() const noexcept {
    return receives_ - receive_room_;
  }
  [[nodiscard]] bool may_receive() const noexcept { return may_receive_; }
  [[nodiscard]] std::chrono::nanoseconds default_limit() const noexcept {
    return settings_.default_limit;
  }
  /// How many requests the receive queue holds.
  [[nodiscard]] std::uint32_t receive_capacity() const noexcept { return receives_; }
  /// How many requests the send queue holds.
  [[nodiscard]] std::uint32_t send_capacity() const noexcept { return sends_; }
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t send_room() const noexcept {
    return next_send_ < send_end_ ? send_end_ - next_send_ : 0;
  }
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t receive_room() const noexcept {
    return receive_room_;
  }
  /// The open scope is a stream, which posts unsignaled requests.
  void open_stream(scope_state& stream) noexcept;
  /// Whether so many requests at the end of the send queue, or more, may be unsignaled.
  [[nodiscard]] VERBSPP_DATA_PATH bool may_have_unsignaled(std::uint64_t count) const noexcept {
    return signaled_end_ + count <= next_send_;
  }
  /// A stream has posted a signaled request.
  VERBSPP_DATA_PATH void note_signaled() noexcept { signaled_end_ = next_send_; }
  /// How many requests may follow each other unsignaled: half a queue, so that the other half is
  /// there while the signal is on its way.
  [[nodiscard]] std::uint32_t longest_unsignaled() const noexcept { return (sends_ + 1) / 2; }

  [[nodiscard]] static error not_carried(const char* operation) noexcept;
  [[nodiscard]] static error posted_within_batch() noexcept;
  [[nodiscard]] VERBSPP_DATA_PATH static error refused(const error& cause,
                                                       kept_memory& memory) noexcept {
    memory.let_go();
    return cause;
  }

 private:
  explicit channel_core(const channel_settings& settings) noexcept;
  ~channel_core();

  /// Whether the device has none of the program's memory once a request of these was posted.
  [[nodiscard]] VERBSPP_DATA_PATH static bool has_no_memory(
      const native_elements& elements) noexcept {
    return elements.size == 0 || elements.is_inline;
  }

  template <class Operation>
  static constexpr bool is_target = std::is_same_v<Operation, read_operation> ||
                                    std::is_same_v<Operation, compare_and_swap_operation> ||
                                    std::is_same_v<Operation, fetch_and_add_operation>;

  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH result<void> post_native(const Operation& operation, work_tag tag,
                                                           kept_memory& memory) noexcept {
    if constexpr (operation_traits<Operation>::only_extended) {
      if (extended_ == nullptr) [[unlikely]]
        return refused(not_extended(operation_traits<Operation>::name), memory);
      extended_posting<transport::rc, ibv_qp_ex> call(extended_);
      call.add(operation, tag);
      const batch_result posted = call.post(capacities_, [] {});
      if (!posted.has_value()) [[unlikely]]
        return refused(posted.assume_error().cause(), memory);
    } else {
      const result<void> posted = post_one<transport::rc>(native_, capacities_, operation, tag);
      if (!posted.has_value()) [[unlikely]]
        return refused(posted.assume_error(), memory);
    }
    return success();
  }

  [[nodiscard]] VERBSPP_DATA_PATH send_record& record_of(std::uint64_t number) noexcept {
    send_record& noted = records_[number & record_mask_];
    if (noted.number != number) noted = {.number = number};
    return noted;
  }
  VERBSPP_DATA_PATH void record(std::uint64_t number, const kept_memory& memory) noexcept {
    record_of(number).memory = memory;
    ++rarities_;
  }
  VERBSPP_DATA_PATH void note_run(scope_state& scope, std::uint64_t number,
                                  std::uint32_t count) noexcept {
    if (scope.sends_end != number) [[unlikely]]
      begin_run(scope, number);
    scope.sends_end = number + count;
  }

  VERBSPP_DATA_PATH void take_completion(const ibv_wc& completion) noexcept {
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]]
      return take_failure(completion);
    if (is_receive(completion.wr_id)) return take_receive(completion);
    take_sends_until(completion.wr_id);
  }
  [[nodiscard]] VERBSPP_DATA_PATH static bool is_receive(std::uint64_t wr_id) noexcept {
    return static_cast<std::int64_t>(wr_id) < 0;
  }
  [[nodiscard]] VERBSPP_DATA_PATH int poll_native(ibv_wc (&completions)[16]) noexcept {
    return trust_driver([&]() __attribute__((always_inline)) {
      return ibv_poll_cq(native_queue_, 16, completions);
    });
  }
  VERBSPP_DATA_PATH void take_sends_until(std::uint64_t wr_id, bool are_plain = false) noexcept {
    const std::uint32_t earlier =
        static_cast<std::uint32_t>(wr_id) - static_cast<std::uint32_t>(completed_);
    // Unless it is of a queue pair that this channel had before.
    if (static_cast<std::int32_t>(earlier) >= 0) [[likely]]
      complete_sends(completed_ + earlier + 1, are_plain);
  }
  /// The requests below that number have left the send queue. They are plain where the caller knows
  /// that there are no rarities.
  VERBSPP_DATA_PATH void complete_sends(std::uint64_t end, bool are_plain = false) noexcept {
    if (!are_plain && rarities_ != 0) [[unlikely]]
      return complete_with_care(end);
    completed_ = succeeded_ = end;
    send_end_ = end + usable_sends_;
  }
  VERBSPP_DATA_PATH void take_receive(const ibv_wc& completion) noexcept {
    receive_slot* const slot = slot_of(completion.wr_id);
    if (slot == nullptr) [[unlikely]]
      return;
    slot->status = IBV_WC_SUCCESS;
    slot->opcode = number_of(completion.opcode);
    slot->byte_count = completion.byte_len;
    slot->flags = completion.wc_flags;
    slot->immediate = completion.imm_data;
    ++receive_room_;
    if ((completion.wc_flags & IBV_WC_WITH_INV) != 0) [[unlikely]]
      note_invalidated(completion.invalidated_rkey);
    finish(*slot);
  }
  /// Null if it is of a queue pair that this channel had before.
  [[nodiscard]] VERBSPP_DATA_PATH receive_slot* slot_of(std::uint64_t wr_id) const noexcept {
    const std::uint32_t index = static_cast<std::uint32_t>(wr_id) & no_slot;
    if (index >= slot_count_ || slots_[index].id != (wr_id & below_operation) ||
        slots_[index].is != receive_slot::state::posted) [[unlikely]]
      return nullptr;
    return &slots_[index];
  }
  VERBSPP_DATA_PATH void finish(receive_slot& slot) noexcept {
    slot.is = receive_slot::state::done;
    if (slot.notes == 0) return;
    if ((slot.notes & (receive_slot::keeping | receive_slot::watched)) != 0) [[unlikely]]
      give_back_memory(slot);
    if ((slot.notes & receive_slot::in_scope) != 0) --slot.scope->receives;
    if ((slot.notes & receive_slot::unheld) != 0) release(slot);
  }
  VERBSPP_DATA_PATH void release(receive_slot& slot) noexcept {
    slot.is = receive_slot::state::free;
    const std::uint32_t index = static_cast<std::uint32_t>(slot.id) & no_slot;
    slot.id = (slot.id + one_use) & below_operation;
    slot.next = free_;
    free_ = index;
  }
  // Out of line, since it happens rarely.

  void collect_with_care() noexcept;
  void collect_from_hub() noexcept;
  void take_shared_failure(const ibv_wc& completion) noexcept;
  [[gnu::noinline]] void take_others(const ibv_wc* completions, int filled) noexcept;
  void take_failure(const ibv_wc& completion) noexcept;
  void fail_send(std::uint64_t number, work_operation operation, std::uint32_t status,
                 std::uint32_t vendor_code) noexcept;
  void fail_receive(receive_slot& slot, std::uint32_t status, std::uint32_t vendor_code) noexcept;
  void note_failure(const work_error& failure, scope_state* scope) noexcept;
  [[nodiscard]] transport_result<completed_work> take_with_attention(request one,
                                                                     bool was_given_up) noexcept;
  /// What a call has put into memory, for what may be in registers elsewhere. Part by part: of a
  /// copy as a whole compilers make none, but have the call write to where it goes.
  [[nodiscard]] VERBSPP_DATA_PATH static transport_result<completed_work> copy_of(
      const transport_result<completed_work>& rare) noexcept {
    if (rare.has_value()) return rare.assume_value();
    return rare.assume_error();
  }
  [[nodiscard]] std::optional<work_error> failure_of(request one) const noexcept;
  [[nodiscard]] scope_state* open_scope_of(request one) const noexcept;
  void leave_rarely(request one, bool must_wait) noexcept;
  void close_outer_scope(scope_state& scope) noexcept;
  void go_if_unused() noexcept;
  void give_back_memory(receive_slot& slot) noexcept;
  void complete_with_care(std::uint64_t end) noexcept;
  void need_attention(bool is_needed) noexcept;
  void watch(receive_slot& slot, const native_elements& elements) noexcept;
  void watch(std::uint64_t number, const native_elements& elements) noexcept;
  void remember(std::uint64_t number, const native_elements& elements) noexcept;
  void hide(std::uint64_t number) noexcept;
  void begin_run(scope_state& scope, std::uint64_t number) noexcept;
  void hide_batch(std::uint64_t first, std::uint32_t count) noexcept;
  [[nodiscard]] error refused_on_uc(const char* operation, const error& cause) const noexcept;
  [[nodiscard]] error no_send(const char* operation) const noexcept;
  [[nodiscard]] bool find_send_room() noexcept;
  [[nodiscard]] scope_state* scope_of_send(std::uint64_t number) const noexcept;
  [[nodiscard]] result<void> make_lost() noexcept;
  void note_invalidated(std::uint32_t rkey) noexcept;
  void lose_queue(int returned) noexcept;
  [[nodiscard]] static error not_extended(const char* operation) noexcept;

  void note_endpoint() noexcept;
  [[nodiscard]] result<void> check_prepared() const noexcept;
  [[nodiscard]] result<void> settle(const result<void>& connected) noexcept;
  void note_root(const error& root, bool is_certain) noexcept;
  void stop_device() noexcept;
  void collect_tail() noexcept;
  void collect_broken() noexcept;
  void collect_until(const wait_limit& limit) noexcept;
  void destroy_queue_pair() noexcept;
  [[nodiscard]] result<void> prepare() noexcept;
  [[nodiscard]] result<void> make_queue() noexcept;
  [[nodiscard]] result<void> enter_hub() noexcept;
  [[nodiscard]] result<void> attach_to_hub() noexcept;
  void leave_hub() noexcept;
  [[nodiscard]] result<void> make_slots() noexcept;
  [[nodiscard]] bool is_idle() const noexcept;
  template <class Done>
  [[nodiscard]] std::optional<error> wait_until(Done done, const wait_limit* limit) noexcept;
  [[nodiscard]] result<wait_end> wait_as_told(const looking& look, const wait_limit& until,
                                              int file_descriptor) noexcept;
  [[nodiscard]] error reason_of(wait_end end, const wait_limit& until) noexcept;
  error give_up(wait_end end, const error& why) noexcept;
  [[nodiscard]] std::optional<error> reason_of_flush() noexcept;

  // What every request looks at comes first.
  std::uint64_t next_send_ = 1;     ///< the number of the next request of the send queue
  std::uint64_t send_end_ = 1;      ///< the first number that there is no room for
  std::uint64_t completed_ = 1;     ///< all below have finished
  std::uint64_t succeeded_ = 1;     ///< the same, but 0 while something needs attention
  std::uint64_t signaled_end_ = 1;  ///< while streams are open: behind their last signaled request
  std::uint64_t usable_sends_ = 0;  ///< how many the send queue takes; 0 while it takes none
  std::uint32_t handles_ = 0;       ///< that exist, and scopes that are open
  /// Requests of the send queue with memory, and one more while something needs attention, and of a
  /// channel of a hub always.
  std::uint32_t rarities_ = 0;
  scope_state* innermost_ = nullptr;
  send_record* records_ = nullptr;  ///< a ring, at the numbers' lower bits
  std::uint64_t record_mask_ = 0;
  std::uint64_t runs_end_ = 0;  ///< behind the last run that has a record
  receive_slot* slots_ = nullptr;
  std::uint32_t slot_count_ = 0;
  std::uint32_t free_ = no_slot;  ///< the first of the free slots
  std::uint32_t receive_room_ = 0;
  /// Handles may be of requests that have failed, or the channel is gone.
  bool needs_attention_ = false;
  bool may_send_ = false;
  bool may_receive_ = false;
  bool watches_ = false;
  transport type_;
  ibv_qp* native_ = nullptr;
  ibv_cq* native_queue_ = nullptr;
  hub_member* member_ = nullptr;  ///< of a hub, if its completions are found there
  ibv_qp_ex* extended_ = nullptr;
  queue_pair_capacities capacities_{};
  unsigned users_ = 0;  ///< for assertions

  channel_state state_ = channel_state::prepared;
  bool root_is_certain_ = false;
  bool queue_is_lost_ = false;
  std::uint32_t sends_ = 0;     ///< how many the send queue takes
  std::uint32_t receives_ = 0;  ///< the same of the receive queue
  std::uint32_t scopes_ = 0;    ///< that there have been
  bool is_orphan_ = false;
  lease_book* leases_ = nullptr;
  bool lost_memory_ = false;  ///< the device did not let go of what it had
  endpoint local_{};
  std::optional<channel_failure> failure_{};
  channel_settings settings_;
  owned<hub_member> member_owner_{};
  owned<receive_slot[]> slots_owner_;
  owned<send_record[]> records_owner_;
  owned<lost_sends> lost_;  ///< the newest first
  std::optional<queue_pair_data> queue_pair_{};

  // Where memory of requests is hidden from the program: what each receive writes to, by its slot,
  // and behind them what those of the send queue write to or read, by their records.
  struct target {
    std::uint64_t address;
    std::uint64_t length;
  };
  [[nodiscard]] target* targets_of(const receive_slot& slot) const noexcept;
  [[nodiscard]] target* targets_of(std::uint64_t number) const noexcept;
  void remember(target* first, const native_elements& elements) const noexcept;
  [[nodiscard]] bool hide(const target* first) const noexcept;
  void show(const target* first) const noexcept;
  void unguard(const target* first) const noexcept;
  std::uint32_t targets_per_request_ = 0;
  owned<target[]> targets_{};
  async_listener listener_;  ///< of what fails while somebody waits
  int watched_descriptor_ = -1;
  std::uint32_t owner_;  ///< in endpoints
  std::uint32_t generation_ = 0;
  std::optional<endpoint> last_peer_{};
};

}  // namespace verbspp::detail
