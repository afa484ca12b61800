// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/detail/number_of.hpp>
#include <verbspp/base/flags.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/path.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace verbspp {

/// What a completion of an extended queue can tell beside `wr_id`, status and operation; the values
/// are those of `ibv_create_cq_wc_flags`.
enum class completion_field : std::uint64_t {
  byte_count = IBV_WC_EX_WITH_BYTE_LEN,
  immediate = IBV_WC_EX_WITH_IMM,  ///< and the invalidated rkey
  queue_pair_number = IBV_WC_EX_WITH_QP_NUM,
  source = IBV_WC_EX_WITH_SRC_QP,
  source_lid = IBV_WC_EX_WITH_SLID,
  service_level = IBV_WC_EX_WITH_SL,
  /// When the device finished, in ticks of its own clock.
  timestamp = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
  /// The same in nanoseconds since 1970.
  wall_clock = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
};

template <>
inline constexpr bool is_flag_bit<completion_field> = true;

using completion_fields = flags<completion_field>;

template <completion_fields Fields, completion_field Field>
concept HasCompletionField =
    detail::because(Fields.contains(Field),
                    "this completion queue was not created with this field: name it among the "
                    "template arguments of extended_completion_queue");

/// A request that succeeded, as an extended queue tells of it: every call asks the device for one
/// field.
template <completion_fields Fields>
class extended_completed_work {
 public:
  /// For the library: of the queue's present completion.
  VERBSPP_DATA_PATH explicit extended_completed_work(ibv_cq_ex* queue) noexcept : queue_(queue) {}

  [[nodiscard]] VERBSPP_DATA_PATH work_operation operation() const noexcept {
    const ibv_wc_opcode opcode = ibv_wc_read_opcode(queue_);
    return static_cast<work_operation>(detail::number_of(opcode));
  }
  /// The bytes that arrived, by a receive or an RDMA read; undefined otherwise.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t byte_count() const noexcept
    requires HasCompletionField<Fields, completion_field::byte_count>
  {
    return ibv_wc_read_byte_len(queue_);
  }
  /// The peer's immediate data; empty if the message had none.
  [[nodiscard]] VERBSPP_DATA_PATH std::optional<immediate_data> immediate() const noexcept
    requires HasCompletionField<Fields, completion_field::immediate>
  {
    if ((ibv_wc_read_wc_flags(queue_) & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return immediate_data::from_network(ibv_wc_read_imm_data(queue_));
  }
  /// The rkey that the peer's send invalidated here, if it did.
  [[nodiscard]] VERBSPP_DATA_PATH std::optional<std::uint32_t> invalidated_rkey() const noexcept
    requires HasCompletionField<Fields, completion_field::immediate>
  {
    if ((ibv_wc_read_wc_flags(queue_) & IBV_WC_WITH_INV) == 0) return std::nullopt;
    return ibv_wc_read_invalidated_rkey(queue_);
  }
  /// The sender of a datagram.
  [[nodiscard]] VERBSPP_DATA_PATH queue_pair_number source() const noexcept
    requires HasCompletionField<Fields, completion_field::source>
  {
    return queue_pair_number::assume(ibv_wc_read_src_qp(queue_) & queue_pair_number::maximum);
  }
  [[nodiscard]] VERBSPP_DATA_PATH lid source_lid() const noexcept
    requires HasCompletionField<Fields, completion_field::source_lid>
  {
    return lid::assume(static_cast<std::uint16_t>(ibv_wc_read_slid(queue_)));
  }
  [[nodiscard]] VERBSPP_DATA_PATH verbspp::service_level service_level() const noexcept
    requires HasCompletionField<Fields, completion_field::service_level>
  {
    return verbspp::service_level::assume(ibv_wc_read_sl(queue_) & verbspp::service_level::maximum);
  }
  /// In ticks of the device's clock; `context::device_clock_khz` has its frequency.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t timestamp() const noexcept
    requires HasCompletionField<Fields, completion_field::timestamp>
  {
    return ibv_wc_read_completion_ts(queue_);
  }
  /// In nanoseconds since 1970.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t wall_clock() const noexcept
    requires HasCompletionField<Fields, completion_field::wall_clock>
  {
    return ibv_wc_read_completion_wallclock_ns(queue_);
  }

 private:
  ibv_cq_ex* queue_;
};

/// The completion that a polling session is at: success or error.
///
/// It is valid only within the call that it is given to.
template <completion_fields Fields>
class extended_completion {
 public:
  /// For the library.
  VERBSPP_DATA_PATH explicit extended_completion(ibv_cq_ex* queue) noexcept : queue_(queue) {}
  extended_completion(const extended_completion&) = delete;
  extended_completion& operator=(const extended_completion&) = delete;

  [[nodiscard]] VERBSPP_DATA_PATH std::uint64_t wr_id() const noexcept { return queue_->wr_id; }
  /// Whose request it was, where several queue pairs share the completion queue.
  [[nodiscard]] VERBSPP_DATA_PATH std::uint32_t queue_pair_number() const noexcept
    requires HasCompletionField<Fields, completion_field::queue_pair_number>
  {
    return ibv_wc_read_qp_num(queue_);
  }
  [[nodiscard]] VERBSPP_DATA_PATH bool is_success() const noexcept {
    return detail::number_of(queue_->status) == IBV_WC_SUCCESS;
  }
  VERBSPP_DATA_PATH explicit operator bool() const noexcept { return is_success(); }
  /// What the request did, or how it failed.
  [[nodiscard]] VERBSPP_DATA_PATH work_result<extended_completed_work<Fields>> get()
      const noexcept {
    if (!is_success()) [[unlikely]]
      return failure();
    return extended_completed_work<Fields>(queue_);
  }

 private:
  // Inline, so that neither the completion nor the result has to be in memory.
  [[nodiscard]] VERBSPP_DATA_PATH work_error failure() const noexcept {
    std::uint32_t number = 0;
    if constexpr (Fields.contains(completion_field::queue_pair_number))
      number = ibv_wc_read_qp_num(queue_);
    return {static_cast<work_status>(detail::number_of(queue_->status)),
            ibv_wc_read_vendor_err(queue_), queue_->wr_id, number};
  }

  ibv_cq_ex* queue_;
};

namespace detail {

/// What a poll asks for in addition: nothing. Drivers only read it.
inline constinit ibv_poll_cq_attr no_poll_attributes{};

/// \pre `free_polling_sessions` was counted down
[[nodiscard]] error nested_polling() noexcept;
[[nodiscard]] error start_poll_failure(int returned) noexcept;
/// Ends the session as well.
[[nodiscard]] error next_poll_failure(ibv_cq_ex* queue, int returned) noexcept;

/// How many polling sessions this thread may begin now: 1, and none while it is in one.
inline constinit thread_local int free_polling_sessions = 1;

/// Lets the assertion of `completion_queue::poll` know.
VERBSPP_DATA_PATH void note_session([[maybe_unused]] const ibv_cq_ex* queue) noexcept {
#ifndef NDEBUG
  queue_in_session = reinterpret_cast<const ibv_cq*>(queue);
#endif
}

/// A polling session of this thread, from `ibv_start_poll` to `ibv_end_poll`.
class polling_session {
 public:
  VERBSPP_DATA_PATH explicit polling_session(ibv_cq_ex* queue) noexcept : queue_(queue) {
    note_session(queue);
  }
  polling_session(const polling_session&) = delete;
  polling_session& operator=(const polling_session&) = delete;
  /// Unless `end` was called, which does not need the destructor to look: a visitor has thrown.
  VERBSPP_DATA_PATH ~polling_session() {
    if (queue_ != nullptr) [[unlikely]]
      end();
  }

  VERBSPP_DATA_PATH void end() noexcept {
    ibv_end_poll(std::exchange(queue_, nullptr));
    free_polling_sessions = 1;
    note_session(nullptr);
  }
  /// Ends it after `ibv_next_poll` has returned that.
  [[nodiscard]] VERBSPP_DATA_PATH error fail(int returned) noexcept {
    note_session(nullptr);
    return next_poll_failure(std::exchange(queue_, nullptr), returned);
  }

 private:
  ibv_cq_ex* queue_;
};

}  // namespace detail

/// A completion queue (`ibv_cq_ex`) whose completions are read field by field, and only those that
/// one asks for; some devices have timestamps.
///
/// It is a completion queue like every other besides, for queue pair builders. Thread rule: any
/// thread may poll; while one does, others wait.
template <completion_fields Fields>
class extended_completion_queue : public completion_queue {
  // The same, but instantiated only where it is used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Fields>>;

 public:
  /// `ibv_create_cq_ex`.
  /// \errors as `completion_queue::create`, and `not_supported` if the device has no such queues or
  /// not all of the fields
  [[nodiscard]] static result<extended_completion_queue> create(const class context& parent,
                                                                std::size_t capacity) noexcept {
    using state = detail::dependent<detail::completion_queue_state, Fields>;
    VERBSPP_TRY(created, state::create_extended(parent, capacity, Fields.bits));
    return extended_completion_queue(std::move(created));
  }

  /// Calls `visit` with an `extended_completion<Fields>` for each completion that is there, at most
  /// `most`; never blocks. All of it is one polling session of the device (`ibv_start_poll` to
  /// `ibv_end_poll`), which ends when this returns, or `visit` throws.
  /// \returns the number of completions; none is a normal answer
  /// \errors `busy` from within `visit`, where sessions could wait for each other; `driver` if the
  /// queue is broken, usually because it overran
  template <class Visit>
  VERBSPP_DATA_PATH result<std::size_t> poll_each(Visit&& visit,
                                                  std::size_t most = SIZE_MAX) const {
    assert(native_handle() != nullptr && "this completion queue was moved from");
    if (most == 0) [[unlikely]]
      return std::size_t{0};
    // Looked at and changed in one step: that is an instruction less.
    if (--detail::free_polling_sessions != 0) [[unlikely]]
      return detail::nested_polling();
    // libibverbs casts one to the other as well.
    ibv_cq_ex* const queue = reinterpret_cast<ibv_cq_ex*>(native_handle());
    int returned = ibv_start_poll(queue, &detail::no_poll_attributes);
    // Where nothing has come there is time.
    if (returned != 0) [[unlikely]] {
      detail::free_polling_sessions = 1;
      if (returned == ENOENT) [[likely]]
        return std::size_t{0};
      return detail::start_poll_failure(returned);
    }
    detail::polling_session session(queue);
    // Signed, so that the compiler knows that it does not come round to 0: who asks only whether
    // there were any has nothing counted.
    std::ptrdiff_t count = 1;
    for (;; ++count) {
      visit(extended_completion<Fields>(queue));
      // Without a limit, which is known here, nothing is compared.
      if (most != SIZE_MAX && static_cast<std::size_t>(count) == most) break;
      returned = ibv_next_poll(queue);
      if (returned == 0) continue;
      if (returned == ENOENT) [[likely]]
        break;
      return session.fail(returned);
    }
    session.end();
    return static_cast<std::size_t>(count);
  }

 private:
  explicit extended_completion_queue(
      detail::reference<detail::completion_queue_state> state) noexcept
      : completion_queue(std::move(state)) {}
};

}  // namespace verbspp
