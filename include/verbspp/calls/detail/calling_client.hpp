// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/calls/detail/lanes.hpp>
#include <verbspp/calls/service_options.hpp>
#include <verbspp/hub/channel_hub.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/pool/message.hpp>

#include <cstdint>
#include <new>
#include <utility>

namespace verbspp::detail {

class service_core;

/// A client of a service. The table of clients and the open calls of the client share it, since
/// calls may be answered on any thread, and after the client has left.
class calling_client : public counted {
 public:
  calling_client(channel_hub hub, channel_id id, const service_options& options) noexcept
      : hub_(std::move(hub)),
        id_(id),
        in_flight_(options.in_flight),
        sleeps_(options.waiting.sleeps()),
        sending_(new(std::nothrow) message[options.in_flight]),
        ready_(new(std::nothrow) message[options.in_flight]),
        lanes_(new(std::nothrow) reference<serving_lane>[options.lanes]) {}
  calling_client(const calling_client&) = delete;
  calling_client& operator=(const calling_client&) = delete;
  ~calling_client() = default;

  // Functions for the thread that has the client's turn.

  [[nodiscard]] bool is_allocated() const noexcept { return sending_ && ready_ && lanes_; }
  void begin_turn() noexcept {
    granted_ = answered_ + in_flight_;
    const brief_guard guard(lock_);
    is_in_turn_ = true;
  }
  /// Sends an answer, or leaves it to the end of a turn if the send queue is full. Defined in
  /// sent_answers.hpp.
  void send_or_keep(channel_core& link, message&& answer, service_statistics& counters) noexcept;
  /// Sends the answers that are ready, until none is left or the send queue is full, and resumes
  /// the coroutines whose accesses have finished. Then ends the turn.
  void end_turn(channel_core& link, service_core& counting) noexcept;
  /// Returns true if the client needs another turn immediately, because of awaited accesses. Later
  /// calls return false until the client needs yet another turn.
  [[nodiscard]] bool take_due_again() noexcept {
    return is_due_again_ && std::exchange(is_due_again_, false);
  }
  /// True if each call that has arrived was answered, or refused, and the answer was posted.
  [[nodiscard]] bool is_answered() const noexcept { return taken_ == answered_; }
  /// Counts a call that has arrived. \returns false if the client had no credit for it
  [[nodiscard]] bool note_call() noexcept {
    return static_cast<std::int32_t>(++taken_ - granted_) <= 0;
  }
  /// \pre the number is below `service_options::lanes`
  [[nodiscard]] reference<serving_lane>& lane(std::uint16_t number) noexcept {
    return lanes_.get()[number];
  }
  /// Records that the client has left: answers are dropped from now on, and awaited accesses fail.
  void leave() noexcept;

  // Functions for any thread.

  /// Passes an answer to the thread that has the client's turn, or will have its next turn.
  void deliver(message&& answer) noexcept;
  /// Makes the thread that has the client's turn, or will have its next turn, poll this lane. If
  /// the client has left, this function ends the awaited accesses instead.
  void poll_later(const reference<serving_lane>& lane) noexcept;
  /// The maximum size of an answer to the client, in bytes.
  [[nodiscard]] std::uint32_t answer_size() const noexcept {
    return __atomic_load_n(&answer_size_, __ATOMIC_RELAXED);
  }
  void set_answer_size(std::uint32_t size) noexcept {
    __atomic_store_n(&answer_size_, size, __ATOMIC_RELAXED);
  }
  [[nodiscard]] channel_id id() const noexcept { return id_; }

 private:
  /// \returns false if the send queue is full, so that the answer was not sent; true if it was
  /// sent, or was dropped because posting has failed for another reason. Defined in
  /// sent_answers.hpp.
  [[nodiscard]] bool send(channel_core& link, message& answer,
                          service_statistics& counters) noexcept;
  /// Sends the answers that are ready, and ends the turn. \returns true if there are lanes to poll
  [[nodiscard]] bool send_ready(channel_core& link, service_core& counting) noexcept;
  /// Resumes the coroutines whose accesses have finished, sends their answers, and ensures that the
  /// client gets a turn when other accesses have finished.
  void serve_accesses(channel_core& link, service_core& counting) noexcept;
  /// Polls the lanes, and resumes the coroutines whose accesses have finished.
  /// \returns true if it has resumed any
  [[nodiscard]] bool poll_lanes() noexcept;
  /// Makes events of the lanes, and the limits of their accesses, cause a turn of the client.
  /// \returns false if the lanes have to be polled immediately
  [[nodiscard]] bool watch_lanes(channel_core& link) noexcept;

  channel_hub hub_;
  channel_id id_;
  std::uint32_t in_flight_;
  bool sleeps_;  ///< the threads of the service may sleep
  std::uint32_t answer_size_ = 0;
  std::uint32_t taken_ = 0;     ///< calls that have arrived
  std::uint32_t answered_ = 0;  ///< calls that were answered
  /// The calls that the client may have sent before the current turn began. Answers that are sent
  /// during the turn do not count, because the calls in the turn had arrived before them.
  std::uint32_t granted_ = 0;
  bool is_due_again_ = false;
  owned<message[]> sending_;  ///< used only by `send_ready`

  brief_lock lock_{};
  // The lock guards the next five members.
  owned<message[]> ready_;  ///< answers to be sent, at most one for each call in flight
  std::uint32_t ready_count_ = 0;
  bool is_in_turn_ = false;
  bool has_left_ = false;
  /// The lanes to poll. Any thread adds lanes; only the thread that has the turn removes them.
  reference<serving_lane> polled_{};

  owned<reference<serving_lane>[]> lanes_;  ///< only for the thread that has the client's turn
};

}  // namespace verbspp::detail
