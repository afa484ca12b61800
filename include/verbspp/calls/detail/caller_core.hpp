// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/chrono.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/calls/caller_options.hpp>
#include <verbspp/calls/detail/call_frame.hpp>
#include <verbspp/calls/detail/lanes.hpp>
#include <verbspp/calls/duration_histogram.hpp>
#include <verbspp/calls/method.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/inbox.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/pool/message_pool.hpp>
#include <verbspp/wait/call_limit.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace verbspp::detail {

/// The state of a caller, independent of the types of its methods. Calls in flight share it, since
/// their handles may outlive the caller.
class caller_core : public counted {
 public:
  /// The number of a slot: a place in the table of calls in flight.
  using slot_index = std::uint16_t;

  [[nodiscard]] static result<reference<caller_core>> open(prepared_channel& link,
                                                           const caller_options& options) noexcept;
  caller_core(inbox answers, message_pool pool, channel_core& core,
              const caller_options& options) noexcept;
  caller_core(const caller_core&) = delete;
  caller_core& operator=(const caller_core&) = delete;
  ~caller_core();

  /// Takes over the connected channel, and compares the methods with those of the service.
  [[nodiscard]] result<void> start(channel&& link, std::span<const method_description* const> of,
                                   call_limit limit) noexcept;
  /// Destroys the channel. Calls in flight fail.
  void close() noexcept;

  [[nodiscard]] channel& link() noexcept { return link_; }
  [[nodiscard]] channel_core& polled() const noexcept { return core_; }
  /// The counters of all methods, or of one.
  [[nodiscard]] caller_statistics statistics() const noexcept;
  [[nodiscard]] caller_statistics statistics(std::uint16_t method) const noexcept;
  [[nodiscard]] duration_histogram durations(std::uint16_t method) const noexcept;

  // A call is made in three steps. 1. `begin` or `begin_waiting` returns the space for the request.
  // 2. The code that uses this class encodes the request into this space. 3. `send` sends the
  // message, and returns the slot of the call, which `finish`, `wait` or `give_up` releases. If a
  // call is not sent, the next call uses the same space.

  /// \errors `would_block` if no call can be sent at the moment; `not_connected` before `start`;
  /// the cause if the connection is broken
  [[nodiscard]] result<std::span<std::byte>> begin(const method_description& of) noexcept;
  [[nodiscard]] static error has_no_credit(const char* method) noexcept;
  /// Returns the space if a call can be sent at the moment; otherwise an empty space. Does not
  /// poll.
  [[nodiscard]] std::span<std::byte> begin_at_once() noexcept;
  // If the call lends memory, `begin_lending` describes the memory at the beginning of the space.
  // The request follows at `request_offset`, and `send_lending` sends the message. If the codec
  // makes calls in the meantime, which it must not do, those calls use other spaces or fail.
  [[nodiscard]] result<std::span<std::byte>> begin_lending(const method_description& of,
                                                           const loan& lent) noexcept;
  /// Waits until the call can be sent. \param lent null unless the call lends memory
  [[nodiscard]] result<std::span<std::byte>> begin_waiting(const method_description& of,
                                                           const loan* lent,
                                                           const wait_limit& until) noexcept;
  [[nodiscard]] static std::size_t request_offset(std::span<const std::byte> begun,
                                                  const method_description& of,
                                                  const loan& lent) noexcept {
    const bool contains_memory =
        lane_in(begun) == sent_lane && of.lends.contains(access::remote_read);
    return loan_size + (contains_memory ? lent.what.length : 0);
  }
  /// Ends the lease of a request that `begin_lending` has begun, and that will not be sent.
  [[nodiscard]] result<void> abandon_loan() noexcept;
  /// \errors `invalid_input` if the codec has returned a size above the space, or has made a call;
  /// those of `channel::post_send`
  [[nodiscard]] result<slot_index> send(const method_description& of, std::size_t size) noexcept;
  [[nodiscard]] result<slot_index> send_lending(const method_description& of, const loan& lent,
                                                std::size_t size) noexcept;
  /// Processes the messages that have arrived.
  void poll() noexcept;
  /// Like `poll`, but does not poll the completion queue.
  void take_arrived() noexcept;
  /// True if the call has an answer, or will get none because the connection is broken.
  [[nodiscard]] bool is_done(slot_index slot) const noexcept {
    return slots_.get()[slot].state == slot_state::answered || failure_.has_value();
  }
  /// True if `begin` would return a space or an error other than `would_block`.
  [[nodiscard]] bool may_begin() noexcept;
  /// True if the bytes of the memory are to be sent with the messages of the call.
  [[nodiscard]] bool sends(const method_description& of, const loan& lent) const noexcept;
  /// True if the bytes of the memory are to be sent, if there may be an idle lane, or if a lane can
  /// be requested.
  [[nodiscard]] bool may_lend(const method_description& of, const loan& lent) const noexcept {
    return sends(of, lent) || may_find_lane();
  }
  /// True if no place is left for a request. No thread is woken when a place becomes free.
  [[nodiscard]] bool lacks_places() const noexcept {
    return begun_ == nullptr && pool_.available() == 0;
  }
  /// Takes the answer. \pre is_done(slot)
  [[nodiscard]] result<message> finish(slot_index slot, const method_description& of) noexcept;
  /// Waits for the answer, and takes it. A duration begins only if the answer has not arrived yet.
  [[nodiscard]] result<message> wait(slot_index slot, const method_description& of,
                                     call_limit limit) noexcept;
  /// Ends a call without taking its answer. If the answer has not arrived yet, the slot becomes
  /// free when it arrives.
  /// \returns false if the service may still access memory that the call has lent
  bool give_up(slot_index slot) noexcept;
  /// The error for a call whose lent memory the service may still access.
  [[nodiscard]] static error still_accessible(const char* method) noexcept;

  // The queue of awaited calls that wait for a credit. While the queue is not empty, `post_call`
  // fails (`would_block`), so that posted calls do not overtake the calls in the queue.
  void enter_queue(const method_description& of) noexcept {
    ++queued_;
    add(counters_of(of.number).counted.waits, 1);
  }
  void leave_queue() noexcept { --queued_; }
  [[nodiscard]] bool has_queue() const noexcept { return queued_ != 0; }

  /// Returns the limit. If it is a duration, the duration begins now.
  [[nodiscard]] wait_limit begin_limit(call_limit limit) const noexcept;

 private:
  enum class slot_state : std::uint8_t { free, waiting, answered, given_up };
  struct method_counters {
    std::uint16_t number = 0;
    caller_statistics counted{};
  };
  /// How far a call has got, in four bytes that are compared as one number.
  struct call_progress {
    [[nodiscard]] constexpr bool equals(const call_progress& other) const noexcept {
      return std::bit_cast<std::uint32_t>(*this) == std::bit_cast<std::uint32_t>(other);
    }

    slot_state state = slot_state::free;
    std::byte first{};             ///< the first byte of the answer: its kind and flags
    std::uint16_t lane = no_lane;  ///< the lane of the memory that the call lends, or `sent_lane`
  };
  struct call_slot : call_progress {
    [[nodiscard]] std::uint16_t method() const noexcept { return call_header::method_of(key); }
    /// The number of the call. The lower bits are the index of the slot. The upper bits distinguish
    /// the calls that have used this slot.
    [[nodiscard]] std::uint32_t number() const noexcept { return call_header::number_of(key); }

    std::uint16_t next_free = 0;
    std::uint64_t key = 0;  ///< see `call_header::key`; a free slot has the number of its next call
    pool_place* answer = nullptr;  ///< if the state is `answered`
    std::uint32_t size = 0;        ///< the size of the answer in bytes, with its header
    method_counters* counters = nullptr;
    std::chrono::steady_clock::time_point begun{};  ///< only if durations are measured
  };

  /// The memory of a call whose answer contains the bytes that the service writes.
  struct sent_loan {
    std::span<std::byte> memory{};
    kept_memory kept{};  ///< for shared memory
  };

  static void add(std::uint64_t& counter, std::uint64_t count) noexcept {
    __atomic_store_n(&counter, counter + count, __ATOMIC_RELAXED);  // only one thread writes
  }
  [[nodiscard]] VERBSPP_DATA_PATH method_counters& counters_of(
      std::uint16_t method) const noexcept {
    std::uint32_t i = 0;
    while (i < method_count_ && counters_.get()[i].number != method) ++i;
    return counters_.get()[i];
  }
  [[nodiscard]] result<void> make_counters(
      std::span<const method_description* const> methods) noexcept;
  [[nodiscard]] bool has_credit() const noexcept;
  [[nodiscard]] std::span<std::byte> space() const noexcept {
    return {begun_->bytes() + call_header::size, largest_request_};
  }
  /// True if an answer of the right size has arrived for a call that lends no memory, and whose
  /// duration is not measured.
  [[nodiscard]] bool is_plain(const call_slot& slot, const method_description& of) const noexcept;
  /// Takes the answer out of the slot of a call that was answered, and frees the slot.
  [[nodiscard]] message take_answer(call_slot& slot) noexcept;
  [[nodiscard]] result<message> finish_plainly(call_slot& slot) noexcept;
  [[nodiscard]] result<message> finish_with_care(slot_index slot,
                                                 const method_description& of) noexcept;
  [[nodiscard]] result<slot_index> send_frame(const method_description& of, std::size_t size,
                                              call_frame_kind kind, std::uint16_t lane) noexcept;
  /// Processes the messages in the places that `next` returns, until it returns none.
  template <class Next>
  void take_each(Next next) noexcept;
  void take(message&& arrived) noexcept;
  /// Takes a message other than the answer to a waiting call.
  void take_late(std::span<const std::byte> bytes) noexcept;
  void count_answer(std::uint32_t credits) noexcept;
  void refuse_peer() noexcept;
  void free(call_slot& slot) noexcept;
  [[nodiscard]] result<message> wait_longer(slot_index slot, const method_description& of,
                                            call_limit limit) noexcept;
  void fail(const error& why) noexcept;
  [[nodiscard]] result<void> compare(std::span<const method_description* const> methods,
                                     const wait_limit& until) noexcept;
  /// Checks that a request for a lane fits into a message.
  [[nodiscard]] result<void> check_lane_request(const char* operation) const noexcept;
  /// Continues with the request that `begin_lending` has begun.
  void take_begun_loan() noexcept;
  [[nodiscard]] result<std::span<std::byte>> begin_sending(const method_description& of,
                                                           const loan& lent) noexcept;
  /// Takes from the answer the bytes that the service has written, and copies them to the memory.
  [[nodiscard]] result<void> take_sent(slot_index slot, message& answer,
                                       caller_statistics& counters) noexcept;
  /// Ends the service's access to the memory of a call whose answer will not be taken.
  /// \returns false if the service may still access it
  bool end_access(std::uint16_t lane, slot_index slot) noexcept;
  [[nodiscard]] bool may_find_lane() const noexcept;
  [[nodiscard]] calling_lane* idle_lane() noexcept;
  /// Returns an idle lane. If there is none, asks the service for one, unless all are in use.
  /// \errors `would_block` if there is no idle lane yet; those of connecting a lane
  [[nodiscard]] result<calling_lane*> find_lane() noexcept;
  [[nodiscard]] result<void> request_lane(calling_lane& lane) noexcept;
  [[nodiscard]] result<calling_lane*> connect_lane(calling_lane& lane) noexcept;
  /// Copies the memory that a call lends into the buffer of the lane. \returns false if the memory
  /// was not copied, and has to be lent directly
  [[nodiscard]] bool copy(calling_lane& lane, const loan& lent) noexcept;
  [[nodiscard]] result<void> grant(calling_lane& lane, const loan& lent) noexcept;
  /// Ends the lease of a call that was answered, or that will not be sent.
  /// \param has_failed true if the lane cannot be used again
  [[nodiscard]] result<void> end_loan(calling_lane& lane, bool has_failed) noexcept;

  channel_core& core_;
  message_pool pool_;
  inbox answers_;
  channel link_{};
  std::uint32_t in_flight_;
  std::uint32_t message_size_;
  std::uint32_t
      largest_request_;  ///< in bytes; after `start`, the smaller `message_size` of both ends
  std::uint32_t sent_ = 0;
  std::uint32_t answered_ = 0;
  /// The total number of calls that may be sent. `start` permits the first call; the service then
  /// increases this number.
  std::uint32_t credits_ = 0;
  owned<call_slot[]> slots_{};
  owned<calling_lane[]> lanes_{};
  std::uint32_t lane_count_;
  std::uint32_t sent_size_;          ///< after `start`, the smaller `sent_size` of both ends
  owned<sent_loan[]> sent_loans_{};  ///< one for each slot; null until a call needs one
  std::uint32_t copied_size_;        ///< set to 0 if the device turns out to have no memory windows
  std::uint32_t first_free_ = 0;
  pool_place* begun_ = nullptr;    ///< the place of a request that was begun, but not sent yet
  pool_place* lending_ = nullptr;  ///< like `begun_`, for a request that lends memory
  std::uint32_t queued_ = 0;
  std::optional<error> failure_{};
  /// The counters of each method, and at the end the counters of all other messages.
  owned<method_counters[]> counters_{};
  method_counters* recent_;  ///< the counters of the method that was called last
  std::uint32_t method_count_ = 0;
  bool measures_durations_;
  owned<duration_histogram[]> durations_{};  ///< one for each of `counters_`; null if not measured
};

}  // namespace verbspp::detail
