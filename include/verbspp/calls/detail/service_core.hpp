// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/calls/detail/call_frame.hpp>
#include <verbspp/calls/detail/caller_core.hpp>
#include <verbspp/calls/detail/lanes.hpp>
#include <verbspp/calls/method.hpp>
#include <verbspp/calls/service_options.hpp>
#include <verbspp/channel/channel_hub.hpp>
#include <verbspp/channel/channel_id.hpp>
#include <verbspp/channel/hub_clients.hpp>
#include <verbspp/channel/message.hpp>
#include <verbspp/channel/message_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

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
  void begin_turn() noexcept;
  /// Sends an answer, or leaves it to the end of a turn if the send queue is full.
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
  /// sent, or was dropped because posting has failed for another reason
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

/// A call that was not answered yet, independent of the type of its method. If it is destroyed, the
/// call is refused.
class open_call {
 public:
  open_call() noexcept = default;
  /// For the thread that has the client's turn. An answer that is given before the call is moved
  /// stays here until `take_answer`.
  open_call(reference<calling_client> from, message&& request) noexcept
      : client_(std::move(from)), message_(std::move(request)), keeps_answer_(true) {}
  /// Returns the answer, or an empty message if there is none yet, or the call was moved.
  [[nodiscard]] message take_answer() noexcept {
    return is_open() ? message() : std::move(message_);
  }
  /// Adds the memory that the call lends. The description of the memory precedes the request.
  void lend(reference<lent_memory> lent) noexcept { lent_ = std::move(lent); }
  /// Adds lent memory whose bytes travel in the call and the answer, and not over a lane.
  /// \errors `invalid_input` if the call is malformed, or leaves too little space for the answer;
  /// `resource_exhausted`
  [[nodiscard]] result<void> lend_sent(const remote_memory_description& what,
                                       const method_description& of) noexcept;
  open_call(open_call&& other) noexcept
      : client_(std::move(other.client_)),
        message_(std::move(other.message_)),
        lent_(std::move(other.lent_)) {}
  open_call& operator=(open_call&& other) noexcept {
    if (this == &other) return *this;
    if (is_open()) drop();
    client_ = std::move(other.client_);
    message_ = std::move(other.message_);
    lent_ = std::move(other.lent_);
    keeps_answer_ = false;
    return *this;
  }
  open_call(const open_call&) = delete;
  open_call& operator=(const open_call&) = delete;
  VERBSPP_DATA_PATH ~open_call() {
    if (is_open()) drop();
  }

  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(client_); }
  [[nodiscard]] std::span<const std::byte> request() const noexcept {
    return body_of(message_).subspan(lent_ ? lent_->request_offset() : 0);
  }
  [[nodiscard]] channel_id client() const noexcept {
    return is_open() ? client_->id() : channel_id();
  }

  /// Encodes an answer, and sends it. `encode` gets the space for the answer, and returns its size.
  /// \errors those of `encode`, and `invalid_input` if it returns a size above the space: the call
  /// is then still open, but `encode` may have overwritten its request; `invalid_input` if the call
  /// was answered already
  template <class Encode>
  [[nodiscard]] VERBSPP_DATA_PATH result<void> answer_with(const char* operation,
                                                           Encode encode) noexcept {
    if (!is_open()) [[unlikely]]
      return answered_already(operation);
    const std::span<std::byte> into = space();
    VERBSPP_TRY(size, encode(into));
    if (size > into.size()) [[unlikely]]
      return too_large(operation, size, into.size());
    finish(call_frame_kind::answer, size);
    return success();
  }
  void refuse(error_kind kind, std::string_view text) noexcept;
  void refuse(const error& why) noexcept;

  // Functions for calls that lend memory.

  [[nodiscard]] std::uint64_t lent_size() const noexcept { return lent_ ? lent_->size() : 0; }
  [[nodiscard]] result<void> read(const scatter_list& into, std::uint64_t offset,
                                  call_limit limit) noexcept;
  [[nodiscard]] result<void> write(const gather_list& from, std::uint64_t offset,
                                   call_limit limit) noexcept;
  /// Like `lent_memory::begin`.
  template <class Elements>
  [[nodiscard]] auto begin(const char* operation, const Elements& elements,
                           std::uint64_t offset) noexcept
      -> decltype(std::declval<lent_memory&>().begin(elements, offset)) {
    if (!is_open()) return answered_already(operation);
    return lent_->begin(elements, offset);
  }
  // Only for calls that have not been answered yet.
  [[nodiscard]] const reference<serving_lane>& lane() const noexcept { return lent_->lane(); }
  [[nodiscard]] const reference<calling_client>& caller() const noexcept { return client_; }

 private:
  [[nodiscard]] static error answered_already(const char* operation) noexcept;
  [[nodiscard]] static error too_large(const char* operation, std::size_t size,
                                       std::size_t limit) noexcept;
  /// The space for the body of the answer. It begins where the body of the request does, or behind
  /// lent memory whose bytes are sent.
  [[nodiscard]] std::span<std::byte> space() noexcept {
    if (lent_ && lent_->is_sent()) [[unlikely]]
      return lent_->space();
    const std::size_t size = message_.capacity() - call_header::size;
    return {message_.bytes().data() + call_header::size,
            std::min<std::size_t>(client_->answer_size(), size)};
  }
  void finish(call_frame_kind kind, std::size_t size) noexcept;
  void finish_lending(call_frame_kind kind, std::size_t size) noexcept;
  void finish(call_frame_kind kind, std::size_t size, std::byte flags) noexcept;
  /// Refuses the call because it was dropped.
  void drop() noexcept;

  reference<calling_client> client_{};
  message message_{};
  reference<lent_memory> lent_{};  ///< empty if calls of the method lend no memory
  bool keeps_answer_ = false;
};

/// A method of a service with its handler.
class method_handler {
 public:
  explicit method_handler(const method_description& method) noexcept : method_(&method) {}
  method_handler(const method_handler&) = delete;
  method_handler& operator=(const method_handler&) = delete;
  virtual ~method_handler();

  [[nodiscard]] const method_description& method() const noexcept { return *method_; }
  virtual void take(open_call&& call) const = 0;

 private:
  const method_description* method_;
};

/// An entry in the table of clients. Destroying it records that the client has left.
class client_entry {
 public:
  client_entry() noexcept = default;
  explicit client_entry(reference<calling_client>&& of) noexcept : client_(std::move(of)) {}
  client_entry(client_entry&&) noexcept = default;
  client_entry& operator=(client_entry&&) = delete;
  ~client_entry() {
    if (client_) client_->leave();
  }
  [[nodiscard]] const reference<calling_client>& operator*() const noexcept { return client_; }

 private:
  reference<calling_client> client_{};
};

/// The state of a service, independent of the types of its methods. Thread-safe.
class service_core {
 public:
  using turn = hub_clients<client_entry>::turn;

  [[nodiscard]] static result<owned<service_core>> create(
      const protection_domain& domain, const service_options& options,
      std::vector<owned<method_handler>> handlers) noexcept;
  service_core(message_pool pool, hub_clients<client_entry> clients, const service_options& options,
               std::vector<owned<method_handler>> handlers) noexcept;
  service_core(const service_core&) = delete;
  service_core& operator=(const service_core&) = delete;
  ~service_core() = default;

  result<channel_id> add(channel&& link) noexcept;
  void remove(channel_id client) noexcept;
  [[nodiscard]] result<void> drain(const wait_limit& until);
  [[nodiscard]] result<void> serve(const wait_limit& until);
  [[nodiscard]] result<void> poll();
  [[nodiscard]] hub_clients<client_entry>& clients() noexcept { return clients_; }
  [[nodiscard]] service_statistics statistics() const noexcept;
  [[nodiscard]] service_statistics statistics(std::uint16_t method) const noexcept;
  /// The counters of a method; for unknown methods, the common counters.
  [[nodiscard]] service_statistics& counters_of(std::uint16_t method) noexcept {
    return entry_of(method).counted;
  }

 private:
  struct method_entry {
    std::uint16_t number = 0;
    const method_handler* handler = nullptr;
    service_statistics counted{};
  };

  /// \returns true if the client needs another turn immediately, because of awaited accesses
  [[nodiscard]] bool serve(turn client) { return execute(client); }
  /// Like `serve`, but does not end the turn, unless it removes the client.
  [[nodiscard]] bool execute(turn& client);
  /// True if `remove` was called for the client.
  [[nodiscard]] bool is_unwanted(channel_id client) const noexcept {
    return __atomic_load_n(&unwanted_.get()[client.index], __ATOMIC_RELAXED) == client.generation;
  }
  /// \returns false if the client has violated the protocol
  [[nodiscard]] bool take(const reference<calling_client>& client, channel& link,
                          channel_core& core, message&& arrived);
  /// Passes a call to its handler, answers a message of the library itself, or refuses the call.
  void dispatch(open_call& call, call_frame_kind kind, std::uint16_t method,
                const method_entry& entry, calling_client& client, channel& link);
  /// The entry of the method. For a method without a handler, this is the entry for all other
  /// messages.
  [[nodiscard]] VERBSPP_DATA_PATH method_entry& entry_of(std::uint16_t method) const noexcept {
    // A binary search, written out because it is on the data path: for one method,
    // std::ranges::lower_bound takes three times as many instructions.
    method_entry* first = methods_.get();
    for (std::size_t count = method_count_; count > 1;) {
      const std::size_t half = count / 2;
      if (first[half].number <= method) first += half;
      count -= half;
    }
    return first->number == method ? *first : other_messages();
  }
  [[nodiscard]] method_entry& other_messages() const noexcept {
    return methods_.get()[method_count_];
  }
  void compare(open_call& call, calling_client& client) const noexcept;
  void connect_lane(open_call& call, calling_client& client, channel& link) noexcept;
  /// Adds to the call the memory that it lends. \returns false if this failed, for instance because
  /// the description of the memory is malformed; the call is then refused
  [[nodiscard]] bool take_loan(open_call& call, calling_client& client,
                               const method_description& of) const noexcept;

  message_pool pool_;
  std::vector<owned<method_handler>> handlers_;
  service_options options_;
  std::size_t method_count_;
  /// One entry for each method, in the order of the methods' numbers. The last entry, which has no
  /// handler, is for all other messages.
  owned<method_entry[]> methods_;
  /// For each index of a client, the generation of the last client that `remove` was called for.
  owned<std::uint32_t[]> unwanted_;
  bool is_draining_ = false;           ///< new calls are refused
  hub_clients<client_entry> clients_;  ///< destroyed first, with the channels
};

}  // namespace verbspp::detail
