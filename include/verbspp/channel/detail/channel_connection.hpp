// SPDX-License-Identifier: Apache-2.0
/// \file
/// What connects a channel, and how its requests are found finished, waited for, and given up.
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/trust_driver.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/channel_failure.hpp>
#include <verbspp/channel/channel_id.hpp>
#include <verbspp/channel/detail/channel_settings.hpp>
#include <verbspp/channel/detail/one_thread.hpp>
#include <verbspp/channel/detail/outstanding_work.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/qp/endpoint.hpp>
#include <verbspp/qp/queue_pair_data.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/work/transport_error.hpp>
#include <verbspp/work/work_completion.hpp>

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <optional>

namespace verbspp::detail {

struct hub_member;
class lease_book;
class looking;

/// The connection of a channel, from one handshake to the next: its queue pair, its failure, what
/// it has completed, and how to wait for that.
class channel_connection : public outstanding_work {
 public:
  channel_connection(const channel_connection&) = delete;
  channel_connection& operator=(const channel_connection&) = delete;

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
  /// A descriptor of the program's that ends waits, and the connection.
  void watch(const watched_descriptor& watched) noexcept { watched_ = watched; }
  /// Why `operation` is refused.
  [[nodiscard]] error refusal(const char* operation) const noexcept;
  [[nodiscard]] static error refusal_of_empty(const char* operation) noexcept;
  /// Nothing was posted, since the limit had passed.
  [[nodiscard]] static error ended_before(const wait_limit& limit) noexcept;
  /// What outstanding work a limit has ended.
  [[nodiscard]] error ended_by(const wait_limit& limit) const noexcept;

  /// Takes completions that are there. \returns whether there may be more: who sleeps is woken by
  /// new ones only, and has to take all before
  VERBSPP_DATA_PATH bool collect() noexcept {
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
          [[likely]] {
        take_sends_until(completions->wr_id, true);
        return false;
      }
    }
    return take_others(completions, filled);
  }

  // Handles.

  /// It is gone; so may be the core.
  VERBSPP_DATA_PATH void drop_handle() noexcept {
    if (--handles_ == 0 && needs_attention_) [[unlikely]]
      go_if_unused();
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

  // What others ask of the channel.

  [[nodiscard]] channel_state state() const noexcept { return state_; }
  /// Which one of a hub it is.
  [[nodiscard]] channel_id id() const noexcept;
  [[nodiscard]] const std::optional<channel_failure>& failure() const noexcept { return failure_; }
  [[nodiscard]] const endpoint& local() const noexcept { return local_; }
  /// The owner of the endpoint that it was connected to last; 0 before that, and of an endpoint
  /// without one.
  [[nodiscard]] std::uint32_t peer_owner() const noexcept { return peer_owner_; }
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
  [[nodiscard]] bool may_receive() const noexcept { return may_receive_; }
  [[nodiscard]] std::chrono::nanoseconds default_limit() const noexcept {
    return settings_.default_limit;
  }

 protected:
  explicit channel_connection(const channel_settings& settings) noexcept;
  ~channel_connection();

  /// Whether the device has none of the program's memory once a request of these was posted.
  [[nodiscard]] VERBSPP_DATA_PATH static bool has_no_memory(
      const native_elements& elements) noexcept {
    return elements.size == 0 || elements.is_inline;
  }

  [[nodiscard]] VERBSPP_DATA_PATH int poll_native(ibv_wc (&completions)[16]) noexcept {
    return trust_driver([&]() __attribute__((always_inline)) {
      return ibv_poll_cq(native_queue_, 16, completions);
    });
  }
  VERBSPP_DATA_PATH void take_completion(const ibv_wc& completion) noexcept {
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]]
      return take_failure(completion);
    if (is_receive(completion.wr_id)) return take_receive(completion);
    take_sends_until(completion.wr_id);
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
  // Out of line, since it happens rarely.

  bool collect_with_care() noexcept;
  void collect_from_hub() noexcept;
  void take_shared_failure(const ibv_wc& completion) noexcept;
  [[gnu::noinline]] bool take_others(const ibv_wc (&completions)[16], int filled) noexcept;
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
  [[nodiscard]] std::optional<work_error> failure_of(request one) noexcept;
  /// The failure of a request of the present connection, which may have been flushed.
  [[nodiscard]] work_error explained(const work_error& failure) noexcept;
  void leave_rarely(request one, bool must_wait) noexcept;
  /// The same failure as that of a drop, if a limit ended the wait.
  [[nodiscard]] static std::optional<error> ended_by_drop(const error& ended) noexcept;
  void go_if_unused() noexcept;
  [[nodiscard]] result<void> make_lost() noexcept;
  void note_invalidated(std::uint32_t rkey) noexcept;
  void lose_queue(int returned) noexcept;

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
  template <class Done>
  [[nodiscard]] std::optional<error> wait_until(Done done, const wait_limit* limit) noexcept;
  [[nodiscard]] result<wait_end> wait_as_told(const looking& look, const wait_limit& until,
                                              const watched_descriptor& another = {}) noexcept;
  [[nodiscard]] error reason_of(wait_end end, const wait_limit& until) noexcept;
  error give_up(wait_end end, const error& why) noexcept;
  [[nodiscard]] std::optional<error> reason_of_flush() noexcept;

  bool may_send_ = false;
  bool may_receive_ = false;
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
  bool is_orphan_ = false;
  lease_book* leases_ = nullptr;
  endpoint local_{};
  std::optional<channel_failure> failure_{};
  channel_settings settings_;
  owned<hub_member> member_owner_{};
  owned<lost_sends> lost_;  ///< the newest first
  std::optional<queue_pair_data> queue_pair_{};

  async_listener listener_;  ///< of what fails while somebody waits
  watched_descriptor watched_{};
  std::uint32_t owner_;  ///< in endpoints
  std::uint32_t generation_ = 0;
  std::optional<endpoint> last_peer_{};
  std::uint32_t peer_owner_ = 0;
};

}  // namespace verbspp::detail
