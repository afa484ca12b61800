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
#include <verbspp/channel/detail/work_slot.hpp>
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

/// What the builder of a channel collects besides the queue pair's parameters.
struct channel_settings {
  transport type = transport::rc;
  queue_pair_settings queue_pair{};
  std::chrono::nanoseconds default_limit = std::chrono::seconds(30);
};

inline constexpr unsigned slot_index_bits = 20;
inline constexpr std::uint32_t no_slot = (1U << slot_index_bits) - 1;
inline constexpr std::uint64_t one_use = std::uint64_t{1} << slot_index_bits;

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

/// The state of a channel, at a place of its own: handles and scopes point to it. It outlives the
/// channel while there are handles.
///
/// Requests of the send queue finish in the order in which they were posted, so their slots are a
/// list in that order: the completion of a signaled one is that of all before it.
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
  /// Gives up what is left of the former connection, and prepares the next one.
  [[nodiscard]] result<void> renew(const wait_limit& limit) noexcept;
  [[nodiscard]] result<void> close(const wait_limit& limit) noexcept;
  /// Ends the connection: ERR, and takes back all that is outstanding; if the device does not give
  /// it in time, by destroying the queue pair. \pre no failure yet, or a request's
  void break_off(const error& root) noexcept;

  /// Waits until the request of that slot has finished, which it has then in any case.
  /// \returns the failure of the wait, if the limit ended it
  [[nodiscard]] std::optional<error> wait_for(const work_slot& slot,
                                              const wait_limit* limit) noexcept;
  /// The same for all of a scope.
  [[nodiscard]] std::optional<error> wait_for_all(const scope_state& scope) noexcept;
  /// The same for room in a queue.
  [[nodiscard]] result<void> wait_for_room(const std::uint32_t& room, std::uint32_t wanted,
                                           const wait_limit* limit) noexcept;
  /// Has the unsignaled requests at the end of the send queue followed by a signaled one.
  void mark_end(const wait_limit* limit) noexcept;
  /// The end of a scope, all of whose requests have finished: handles of it that still exist are
  /// told.
  void end_scope(scope_state& scope) noexcept;

  /// Why `operation` is refused.
  [[nodiscard]] error refusal(const char* operation) const noexcept;
  [[nodiscard]] error no_room(const char* operation, bool is_send) const noexcept;
  [[nodiscard]] static error refusal_of_empty(const char* operation) noexcept;
  /// Nothing was posted, since the limit had passed.
  [[nodiscard]] static error ended_before(const wait_limit& limit) noexcept;
  /// What outstanding work a limit has ended.
  [[nodiscard]] error ended_by(const wait_limit& limit) const noexcept;

  /// Posts one request of the send queue, whose slot is the caller's to give to a handle. If it
  /// keeps memory, that is let go if this fails, too.
  template <class Operation>
  [[nodiscard]] VERBSPP_DATA_PATH result<work_slot*> post(const Operation& operation,
                                                          scope_state* scope, std::uint8_t notes,
                                                          bool signaled = true,
                                                          kept_memory memory = {}) noexcept {
    using traits = operation_traits<Operation>;
    if (!may_send_) [[unlikely]]
      return refused(refusal(traits::name), memory);
    if constexpr (!traits::carried_by(transport::uc))
      if (type_ != transport::rc) [[unlikely]]
        return refused(not_carried(traits::name), memory);
    if ((traits::flags(operation) & IBV_SEND_FENCE) != 0 && type_ != transport::rc) [[unlikely]]
      return refused(no_fence(traits::name), memory);
    if (send_room_ == 0 || free_ == no_slot) [[unlikely]] {
      collect();
      if (!may_send_) return refused(refusal(traits::name), memory);
      if (send_room_ == 0 || free_ == no_slot) return refused(no_room(traits::name, true), memory);
    }
    const one_thread only(users_);
    work_slot& slot = slots_[free_];
    VERBSPP_TRYV(post_native(operation, {.id = slot.id, .signaled = signaled}, memory));
    free_ = slot.next;
    slot.operation = static_cast<std::uint8_t>(traits::completes_as);
    join_send_queue(slot, signaled);
    note_posted(slot, scope, notes, memory);
    if constexpr (is_target<Operation>)
      if (watches_) [[unlikely]]
        watch(slot, traits::elements(operation));
    return &slot;
  }

  /// The same of the receive queue.
  [[nodiscard]] VERBSPP_DATA_PATH result<work_slot*> post(const receive_operation& operation,
                                                          scope_state* scope, std::uint8_t notes,
                                                          bool /*signaled*/ = true,
                                                          kept_memory memory = {}) noexcept {
    if (!may_receive_) [[unlikely]]
      return refused(refusal(posting_receive), memory);
    if (receive_room_ == 0 || free_ == no_slot) [[unlikely]] {
      collect();
      if (!may_receive_) return refused(refusal(posting_receive), memory);
      if (receive_room_ == 0 || free_ == no_slot)
        return refused(no_room(posting_receive, false), memory);
    }
    const one_thread only(users_);
    work_slot& slot = slots_[free_];
    const result<void> posted = post_one_receive(
        operation, {.id = slot.id}, posting_receive, capacities_.max_receive_elements,
        [this](auto* list, auto* rejected) { return ibv_post_recv(native_, list, rejected); });
    if (!posted.has_value()) [[unlikely]]
      return refused(posted.assume_error(), memory);
    free_ = slot.next;
    slot.operation = static_cast<std::uint8_t>(work_operation::receive);
    --receive_room_;
    note_posted(slot, scope, notes, memory);
    if (watches_) [[unlikely]]
      watch(slot, native_of(operation.elements));
    return &slot;
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
  /// A slot for a request that is to be posted; null if there is none.
  template <work_operation Operation>
  [[nodiscard]] VERBSPP_DATA_PATH work_slot* reserve() noexcept {
    if (free_ == no_slot) [[unlikely]]
      return nullptr;
    work_slot& slot = slots_[free_];
    free_ = slot.next;
    slot.operation = static_cast<std::uint8_t>(Operation);
    return &slot;
  }
  /// What the request will have the device write to.
  template <class Operation>
  VERBSPP_DATA_PATH void note_targets(work_slot& slot, const Operation& operation) noexcept {
    if (watches_) [[unlikely]]
      remember(slot, is_target<Operation> ? operation_traits<Operation>::elements(operation)
                                          : native_elements());
  }
  /// The request was posted to the send queue.
  VERBSPP_DATA_PATH void commit(work_slot& slot, scope_state* scope, std::uint8_t notes) noexcept {
    join_send_queue(slot, true);
    note_posted(slot, scope, notes, {});
    if (watches_) [[unlikely]]
      hide(slot);
  }
  /// The same of the receive queue, for one that fills that element.
  VERBSPP_DATA_PATH void commit_receive(work_slot& slot, const ibv_sge& filled) noexcept {
    --receive_room_;
    note_posted(slot, nullptr, 0, {});
    if (watches_) [[unlikely]]
      watch(slot, {.single = filled, .range = nullptr, .size = 1});
  }
  /// It was not posted.
  VERBSPP_DATA_PATH void give_back(work_slot& slot) noexcept { release(slot); }
  /// The request, which was posted, keeps that memory from now on.
  VERBSPP_DATA_PATH void keep(work_slot& slot, const kept_memory& memory) noexcept {
    slot.memory = memory;
    slot.notes |= work_slot::keeping;
  }
  /// Whether the device has never let go of the memory of a request that is done.
  [[nodiscard]] static bool has_lost(const work_slot& slot) noexcept {
    return (slot.notes & work_slot::lost) != 0;
  }

  /// Takes the completions that are there.
  VERBSPP_DATA_PATH void collect() noexcept {
    ibv_wc completions[16];
    int filled = 0;
    {
      const one_thread only(users_);
      filled = trust_driver([&]() __attribute__((always_inline)) {
        return ibv_poll_cq(native_queue_, 16, completions);
      });
      for (int i = 0; i < filled; ++i) take_completion(completions[i]);
    }
    if (filled < 0) [[unlikely]]
      lose_queue(filled);
  }

  /// What came of a request that is done; its slot is free then.
  [[nodiscard]] VERBSPP_DATA_PATH transport_result<completed_work> take_result(
      work_slot& slot) noexcept {
    if (slot.notes != 0) [[unlikely]] {
      if ((slot.notes & (work_slot::over | work_slot::orphaned)) != 0) return take_late(slot);
      if ((slot.notes & work_slot::in_scope) != 0) --slot.scope->held;
    }
    if (slot.status != IBV_WC_SUCCESS) [[unlikely]] {
      const work_error failure = failure_of(slot);
      release(slot);
      return failure;
    }
    const completed_work done(slot.opcode, slot.byte_count, slot.flags, slot.immediate);
    release(slot);
    return done;
  }
  /// The handle of the request goes, without having taken the result.
  VERBSPP_DATA_PATH void leave(work_slot& slot) noexcept {
    if (slot.is == work_slot::state::posted && slot.notes == work_slot::in_scope) {
      slot.notes = work_slot::in_scope | work_slot::unheld;
      --slot.scope->held;
      ++slot.scope->dropped;
    } else {
      leave_rarely(slot);
    }
  }
  /// An open scope needs the core as a handle does.
  VERBSPP_DATA_PATH void open_scope() noexcept { ++scopes_; }
  VERBSPP_DATA_PATH void close_scope() noexcept {
    --scopes_;
    if (is_orphan_) [[unlikely]]
      go_if_unused();
  }

  // What others ask of the channel.

  [[nodiscard]] channel_state state() const noexcept { return state_; }
  [[nodiscard]] const std::optional<channel_failure>& failure() const noexcept { return failure_; }
  [[nodiscard]] ibv_qp_ex* native_extended() const noexcept { return extended_; }
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
  [[nodiscard]] std::uint32_t sends_outstanding() const noexcept { return sends_ - send_room_; }
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
  [[nodiscard]] const std::uint32_t& send_room() const noexcept { return send_room_; }
  [[nodiscard]] const std::uint32_t& receive_room() const noexcept { return receive_room_; }
  [[nodiscard]] std::uint32_t unsignaled() const noexcept { return unsignaled_; }
  /// How many requests may follow each other unsignaled: half a queue, so that the other half is
  /// there while the signal is on its way.
  [[nodiscard]] std::uint32_t longest_unsignaled() const noexcept { return (sends_ + 1) / 2; }

  [[nodiscard]] static error not_carried(const char* operation) noexcept;

 private:
  explicit channel_core(const channel_settings& settings) noexcept;
  ~channel_core();

  template <class Operation>
  static constexpr bool is_target = std::is_same_v<Operation, read_operation> ||
                                    std::is_same_v<Operation, compare_and_swap_operation> ||
                                    std::is_same_v<Operation, fetch_and_add_operation>;

  [[nodiscard]] VERBSPP_DATA_PATH static error refused(const error& cause,
                                                       kept_memory& memory) noexcept {
    memory.let_go();
    return cause;
  }

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

  VERBSPP_DATA_PATH void join_send_queue(work_slot& slot, bool signaled) noexcept {
    const std::uint32_t index = static_cast<std::uint32_t>(slot.id) & no_slot;
    --send_room_;
    unsignaled_ = signaled ? 0 : unsignaled_ + 1;
    if (newest_send_ == no_slot)
      oldest_send_ = index;
    else
      slots_[newest_send_].next = index;
    newest_send_ = index;
    slot.next = no_slot;
  }
  VERBSPP_DATA_PATH void note_posted(work_slot& slot, scope_state* scope, std::uint8_t notes,
                                     const kept_memory& memory) noexcept {
    slot.is = work_slot::state::posted;
    slot.notes = notes;
    if ((notes & work_slot::in_scope) != 0) {
      slot.scope = scope;
      ++scope->outstanding;
      if ((notes & work_slot::unheld) == 0) ++scope->held;
    }
    if (memory.keeper != nullptr) [[unlikely]] {
      slot.memory = memory;
      slot.notes |= work_slot::keeping;
    }
  }

  VERBSPP_DATA_PATH void take_completion(const ibv_wc& completion) noexcept {
    const std::uint32_t index = static_cast<std::uint32_t>(completion.wr_id) & no_slot;
    if (index >= slot_count_ || slots_[index].id != completion.wr_id ||
        slots_[index].is != work_slot::state::posted) [[unlikely]]
      return;  // of a queue pair that this channel had before
    work_slot& slot = slots_[index];
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]]
      return take_failure(slot, completion);
    slot.status = IBV_WC_SUCCESS;
    slot.opcode = number_of(completion.opcode);
    slot.byte_count = completion.byte_len;
    slot.flags = completion.wc_flags;
    slot.immediate = completion.imm_data;
    if (slot.operation == static_cast<std::uint8_t>(work_operation::receive))
      ++receive_room_;
    else
      leave_send_queue(index);
    finish(slot);
  }
  /// The request there has left the send queue, and all before it with it.
  VERBSPP_DATA_PATH void leave_send_queue(std::uint32_t index) noexcept {
    while (oldest_send_ != index) [[unlikely]] {
      work_slot& earlier = slots_[oldest_send_];
      oldest_send_ = earlier.next;
      ++send_room_;
      earlier.status = IBV_WC_SUCCESS;
      finish(earlier);
    }
    oldest_send_ = slots_[index].next;
    if (oldest_send_ == no_slot) newest_send_ = no_slot;
    ++send_room_;
  }
  VERBSPP_DATA_PATH void finish(work_slot& slot) noexcept {
    slot.is = work_slot::state::done;
    if (slot.notes == 0) return;
    if ((slot.notes & (work_slot::keeping | work_slot::watched)) != 0) [[unlikely]]
      give_back_memory(slot);
    if ((slot.notes & work_slot::in_scope) != 0) --slot.scope->outstanding;
    if ((slot.notes & work_slot::unheld) != 0) release(slot);
  }
  VERBSPP_DATA_PATH void release(work_slot& slot) noexcept {
    slot.is = work_slot::state::free;
    const std::uint32_t index = static_cast<std::uint32_t>(slot.id) & no_slot;
    slot.id += one_use;
    slot.next = free_;
    free_ = index;
  }

  // Out of line, since it happens rarely.

  void take_failure(work_slot& slot, const ibv_wc& completion) noexcept;
  [[nodiscard]] transport_result<completed_work> take_late(work_slot& slot) noexcept;
  void leave_rarely(work_slot& slot) noexcept;
  void go_if_unused() noexcept;
  void give_back_memory(work_slot& slot) noexcept;
  void watch(work_slot& slot, const native_elements& elements) noexcept;
  void remember(work_slot& slot, const native_elements& elements) noexcept;
  void hide(work_slot& slot) noexcept;
  void lose_queue(int returned) noexcept;
  [[nodiscard]] work_error failure_of(const work_slot& slot) const noexcept;
  [[nodiscard]] static error not_extended(const char* operation) noexcept;

  void note_endpoint() noexcept;
  void note_root(const error& root, bool is_certain) noexcept;
  void stop_device() noexcept;
  void collect_tail() noexcept;
  void collect_until(const wait_limit& limit) noexcept;
  void destroy_queue_pair() noexcept;
  [[nodiscard]] result<void> prepare() noexcept;
  [[nodiscard]] result<void> make_queue() noexcept;
  [[nodiscard]] result<void> make_slots() noexcept;
  [[nodiscard]] bool is_idle() const noexcept;
  template <class Done>
  [[nodiscard]] std::optional<error> wait_until(Done done, const wait_limit* limit) noexcept;

  // What every request looks at comes first.
  work_slot* slots_ = nullptr;
  std::uint32_t slot_count_ = 0;
  std::uint32_t free_ = no_slot;  ///< the first of the free slots
  std::uint32_t oldest_send_ = no_slot;
  std::uint32_t newest_send_ = no_slot;
  std::uint32_t send_room_ = 0;
  std::uint32_t receive_room_ = 0;
  std::uint32_t unsignaled_ = 0;  ///< requests at the end of the send queue
  bool may_send_ = false;
  bool may_receive_ = false;
  bool watches_ = false;
  transport type_;
  ibv_qp* native_ = nullptr;
  ibv_cq* native_queue_ = nullptr;
  ibv_qp_ex* extended_ = nullptr;
  queue_pair_capacities capacities_{};
  unsigned users_ = 0;  ///< for assertions

  channel_state state_ = channel_state::prepared;
  bool root_is_certain_ = false;
  bool queue_is_lost_ = false;
  std::uint32_t sends_ = 0;     ///< how many the send queue takes
  std::uint32_t receives_ = 0;  ///< the same of the receive queue
  std::uint32_t scopes_ = 0;    ///< that are open
  std::uint32_t orphans_ = 0;   ///< handles that are left, when the channel is gone
  bool is_orphan_ = false;
  bool lost_memory_ = false;  ///< the device did not let go of what it had
  endpoint local_{};
  std::optional<channel_failure> failure_{};
  channel_settings settings_;
  owned<work_slot[]> slots_owner_;
  std::optional<queue_pair_data> queue_pair_{};

  // Where memory of requests is hidden from the program: what each slot's request writes to.
  struct target {
    std::uint64_t address;
    std::uint64_t length;
  };
  [[nodiscard]] target* targets_of(const work_slot& slot) const noexcept;
  std::uint32_t targets_per_slot_ = 0;
  owned<target[]> targets_{};
  std::uint32_t owner_;  ///< in endpoints
  std::uint32_t generation_ = 0;
  std::optional<endpoint> last_peer_{};
};

}  // namespace verbspp::detail
