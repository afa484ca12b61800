// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "channel/hub_events.hpp"
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/channel_hub.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/detail/hub_reference.hpp>
#include <verbspp/channel/detail/hub_turn.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/queue/queue_accounting.hpp>
#include <verbspp/queue/shared_receive_queue.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// What a hub and one of its channels have in common: the completions that were found for the
/// channel, until the thread that has the channel takes them.
///
/// Whoever has the hub's lock puts them in; the channel takes them out without it. There are never
/// more than the channel has requests outstanding, and some that tell of failed shared receives.
struct [[gnu::visibility("hidden")]] hub_member {
  /// \pre called by the channel
  template <class Take>
  void take_each(Take take) noexcept {
    const std::uint32_t end = __atomic_load_n(&end_, __ATOMIC_ACQUIRE);
    for (; first_ != end; __atomic_store_n(&first_, first_ + 1, __ATOMIC_RELEASE))
      take(completions_.get()[first_ & mask_]);
  }

  /// Whether what the channel watches has ended, which no one has asked before.
  [[nodiscard]] bool take_hang_up() noexcept {
    return __atomic_exchange_n(&is_hung_up_, false, __ATOMIC_RELAXED);
  }

  hub_reference hub{};
  channel_id id{};

 private:
  friend class hub_state;

  [[nodiscard]] result<void> make_room(std::uint64_t requests) noexcept;
  void put(const ibv_wc& completion) noexcept;

  // The hub's lock guards these.
  std::uint32_t number_ = 0;  ///< of the queue pair; none has this one
  std::uint64_t expected_ = 0;
  bool knows_failure_ = false;  ///< of a shared receive

  bool is_hung_up_ = false;

  owned<ibv_wc[]> completions_{};  ///< a ring
  std::uint32_t mask_ = 0;
  alignas(64) std::uint32_t end_ = 0;
  alignas(64) std::uint32_t first_ = 0;
};

/// What a hub is. Thread-safe.
class [[gnu::visibility("hidden")]] hub_state {
 public:
  [[nodiscard]] static result<hub_reference> create(const protection_domain& domain,
                                                    const message_pool* pool,
                                                    const hub_options& options) noexcept;
  hub_state(const hub_state&) = delete;
  hub_state& operator=(const hub_state&) = delete;
  void add_reference() noexcept { __atomic_fetch_add(&references_, 1U, __ATOMIC_RELAXED); }
  void drop_reference() noexcept {
    if (__atomic_fetch_sub(&references_, 1U, __ATOMIC_ACQ_REL) == 1) delete this;
  }

  // What a channel does, in this order.

  /// The channel gets an index.
  [[nodiscard]] result<void> join(hub_member& member) noexcept;
  /// It has a queue pair of that number and port, and can have so many requests outstanding: as
  /// many as were granted if there is room for these, else as were asked for.
  /// \returns whether that is as many as were granted
  [[nodiscard]] result<bool> attach(hub_member& member, std::uint32_t number, unsigned port,
                                    std::uint64_t granted, std::uint64_t asked) noexcept;
  /// Looks for completions, unless somebody else does just now. \returns what failed, else 0
  [[nodiscard]] int look() noexcept;
  /// Takes all completions that are there: the queue pair is in ERR, and about to be destroyed.
  void take_all() noexcept;
  /// Its queue pair is gone, unless the device has kept it; so are messages that it had received.
  void detach(hub_member& member, bool is_destroyed) noexcept;
  /// Its index may be another's, once no turn has it.
  void leave(hub_member& member) noexcept;
  /// Keeps arrivals of the channel until `release`.
  void hold(const hub_member& member) noexcept;
  /// Hands out the arrivals of a channel that was held. Where channels are in a table, the table
  /// does this.
  void release(const hub_member& member) noexcept;
  /// Gives the channel news if the descriptor ends. Replaces the one before; below 0 for none.
  void watch(hub_member& member, const watched_descriptor& before,
             const watched_descriptor& watched) noexcept;

  // For the table of clients.

  /// The hub keeps the table, and holds all channels from now on, until the table releases each.
  [[nodiscard]] result<void> keep(owned<hub_table> table) noexcept;
  [[nodiscard]] bool has_table() const noexcept { return static_cast<bool>(table_); }
  /// Releases a channel that is in the table now, with news, so that it gets a turn.
  void admit(std::uint32_t index) noexcept;
  /// From now on, `end_turn` refuses for channels that exist.
  void close_table() noexcept;
  [[nodiscard]] result<hub_turn> wait_for_turn(const wait_limit& limit) noexcept;
  /// As `hub_turn::of`.
  [[nodiscard]] hub_turn turn_of(std::uint32_t index) noexcept;
  /// The next message that had come before the turn.
  [[nodiscard]] message next_message(hub_turn& turn) noexcept;
  /// \returns false if the table is closed: destroy the channel, and call this again
  [[nodiscard]] bool end_turn(hub_turn& turn) noexcept;

  // What others ask.

  [[nodiscard]] result<std::size_t> poll(std::span<arrival> into) noexcept;
  /// The same, waited for: at least one.
  [[nodiscard]] result<std::size_t> wait(std::span<arrival> into, const wait_limit& limit) noexcept;
  [[nodiscard]] wait_mode waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::uint32_t size() noexcept;
  [[nodiscard]] std::uint64_t room() noexcept;
  [[nodiscard]] std::uint32_t posted() noexcept;
  [[nodiscard]] std::uint32_t capacity() const noexcept { return channels_; }
  [[nodiscard]] const completion_queue& queue() const noexcept { return queue_; }
  [[nodiscard]] const protection_domain& domain() const noexcept { return domain_; }
  [[nodiscard]] const std::optional<shared_receive_queue>& receives() const noexcept {
    return receives_;
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;

  /// A place of the pool, while it is posted, or has a message that was not handed out.
  struct place_state {
    completed_work work{0, 0, 0, 0};
    std::uint32_t next = none;  ///< the next message of the channel
    bool is_posted = false;
  };
  /// Messages of one channel, in order.
  struct message_list {
    std::uint32_t first = none;
    std::uint32_t last = none;
  };
  /// The channel of an index, and its arrivals.
  struct row {
    hub_member* member = nullptr;
    std::uint32_t generation = 0;
    std::uint32_t next_free = none;
    std::uint32_t next_ready = none;
    message_list messages{};
    bool has_news = false;
    bool is_ready = false;    ///< in the list, where a destroyed channel may be, too
    bool is_held = false;     ///< until `release`
    bool is_in_turn = false;  ///< until `end_turn`

    /// Whether it has arrivals that may be handed out.
    [[nodiscard]] bool is_due() const noexcept {
      return member != nullptr && !is_held && !is_in_turn && (has_news || messages.first != none);
    }
  };
  /// From a queue pair's number, of 24 bits, to the index of its channel: two arrays, of which the
  /// second one is there if a channel had such a number.
  class number_table {
   public:
    number_table() noexcept = default;
    number_table(const number_table&) = delete;
    number_table& operator=(const number_table&) = delete;
    ~number_table();
    [[nodiscard]] bool allocate() noexcept;
    [[nodiscard]] bool set(std::uint32_t number, std::uint16_t index) noexcept;
    void clear(std::uint32_t number) noexcept;
    [[nodiscard]] std::optional<std::uint16_t> find(std::uint32_t number) const noexcept;

   private:
    static constexpr unsigned low_bits = 12;
    static constexpr std::uint32_t length = 1U << low_bits;
    owned<std::uint16_t*[]> pages_{};  ///< of an index plus 1; 0 is none
  };

  hub_state(protection_domain domain, completion_queue queue, const hub_options& options) noexcept;
  ~hub_state();
  [[nodiscard]] result<void> start(const message_pool* pool, const hub_options& options) noexcept;
  void listen() noexcept;

  struct found {
    std::size_t count = 0;
    bool is_short = false;  ///< the pool has had too few places
    bool has_more = false;  ///< for other threads
  };
  /// Calls `take` for each ready channel until that returns false.
  template <class Take>
  [[nodiscard]] result<found> look_for(Take take) noexcept;
  [[nodiscard]] result<found> look_for(std::span<arrival> into) noexcept;
  template <class Find>
  [[nodiscard]] result<found> wait_until(Find find, const wait_limit& limit) noexcept;
  template <class Find>
  [[nodiscard]] result<std::size_t> wait_for(Find find, const wait_limit& limit) noexcept;
  /// Wakes the threads that wait for arrivals: some are there without a completion.
  void wake_waiting() noexcept;
  void take_events() noexcept;

  // \pre the lock is taken, from here on.

  /// Hands out all completions that there are: who sleeps afterwards is woken by new ones only.
  void take_those_there() noexcept;
  void hand_out(const ibv_wc& completion) noexcept;
  void hand_out_shared(const ibv_wc& completion) noexcept;
  void note_news(std::uint32_t index) noexcept;
  void note_ready(std::uint32_t index) noexcept;
  [[nodiscard]] std::uint32_t pop_ready() noexcept;
  [[nodiscard]] hub_turn begin_turn(std::uint32_t index) noexcept;
  void append(message_list& to, const message_list& more) noexcept;
  [[nodiscard]] message take_first(message_list& from, channel_id source) noexcept;
  void drop_arrivals(row& of) noexcept;
  void free_index(std::uint32_t index) noexcept;
  void refill() noexcept;
  /// Takes a place back that the device has filled, or not.
  void take_back(std::uint32_t place) noexcept;
  [[nodiscard]] hub_member* member_of(std::uint32_t number) noexcept;

  unsigned references_ = 1;
  protection_domain domain_;
  completion_queue queue_;
  std::uint32_t channels_;
  wait_mode waiting_;
  std::optional<message_pool> pool_{};
  std::optional<shared_receive_queue> receives_{};
  std::uint32_t depth_ = 0;  ///< how many shared receives there are to be
  std::uint32_t refill_ = 0;

  std::mutex lock_{};
  int lost_ = 0;  ///< what polling has failed with
  completion_queue_accounting room_;
  std::uint32_t size_ = 0;
  owned<row[]> rows_{};
  std::uint32_t first_free_ = 0;
  std::uint32_t first_ready_ = none;
  std::uint32_t last_ready_ = none;
  number_table numbers_{};
  owned<place_state[]> places_{};
  std::uint32_t posted_ = 0;
  std::optional<error> refill_failure_{};
  owned<hub_table> table_{};
  bool is_table_closed_ = false;

  async_listener listener_;            ///< for failures during a wait
  hub_events events_{};                ///< other than completions
  std::uint32_t waiting_threads_ = 0;  ///< atomic
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
