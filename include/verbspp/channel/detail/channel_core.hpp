// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a channel is made of, with how its requests are posted.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/detail/channel_connection.hpp>
#include <verbspp/channel/detail/channel_settings.hpp>
#include <verbspp/channel/detail/one_thread.hpp>
#include <verbspp/channel/detail/work_slot.hpp>
#include <verbspp/channel/detail/wr_id.hpp>
#include <verbspp/work/batch.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting.hpp>
#include <verbspp/work/transport.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <type_traits>

namespace verbspp::detail {

/// What posting does where the queue is full.
struct room_wait {
  bool is_wanted = false;
  const wait_limit* limit = nullptr;  ///< null: the channel's default
};

/// The state of a channel, at a place of its own: handles and scopes point to it. It outlives the
/// channel while there are handles.
class channel_core : public channel_connection {
 public:
  [[nodiscard]] static result<channel_core*> create(const channel_settings& settings) noexcept;
  /// What an empty channel has, which refuses everything.
  [[nodiscard]] static channel_core& empty() noexcept;

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
        hide(number, traits::elements(operation));
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
      hide(slot, native_of(operation.elements));
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

  // Scopes and streams.

  /// Waits as `wait_for` does, for all of a scope.
  [[nodiscard]] std::optional<error> wait_for_all(const scope_state& scope) noexcept;
  /// The open scope is a stream, which posts unsignaled requests.
  void open_stream(scope_state& stream) noexcept;
  /// Has the unsignaled requests at the end of a stream followed by a signaled one.
  void mark_end(const scope_state& stream) noexcept;

  // What posting is refused with.

  [[nodiscard]] error no_room(const char* operation, bool is_send) const noexcept;
  [[nodiscard]] static error not_carried(const char* operation) noexcept;
  [[nodiscard]] static error posted_within_batch() noexcept;
  [[nodiscard]] VERBSPP_DATA_PATH static error refused(const error& cause,
                                                       kept_memory& memory) noexcept {
    memory.let_go();
    return cause;
  }

 private:
  using channel_connection::channel_connection;
  ~channel_core() = default;
  friend class channel_connection;

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

  [[nodiscard]] error refused_on_uc(const char* operation, const error& cause) const noexcept;
  [[nodiscard]] error no_send(const char* operation) const noexcept;
  [[nodiscard]] bool find_send_room() noexcept;
  [[nodiscard]] static error not_extended(const char* operation) noexcept;
};

}  // namespace verbspp::detail
