// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "channel/hub_events.hpp"
#include "channel/receive_batch.hpp"
#include <verbspp/base/detail/brief_lock.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/channel_hub.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/detail/hub_reference.hpp>
#include <verbspp/channel/detail/hub_turn.hpp>
#include <verbspp/channel/detail/pool_places.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/queue/queue_accounting.hpp>
#include <verbspp/queue/shared_receive_queue.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

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
  [[nodiscard]] result<hub_turn> wait_for_turn(call_limit limit) noexcept;
  /// As `hub_turn::of`.
  [[nodiscard]] hub_turn turn_of(std::uint32_t index) noexcept;
  /// The next message that had come before the turn.
  [[nodiscard]] message next_message(hub_turn& turn) noexcept;
  /// \returns false if the table is closed: destroy the channel, and call this again
  [[nodiscard]] bool end_turn(hub_turn& turn) noexcept;

  // What others ask.

  [[nodiscard]] result<std::span<arrival>> poll(std::span<arrival> into) noexcept;
  /// The same, waited for: at least one.
  [[nodiscard]] result<std::span<arrival>> wait(std::span<arrival> into, call_limit limit) noexcept;
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

  /// The channel of an index, and its arrivals.
  struct alignas(64) row {
    hub_member* member = nullptr;
    channel_id id{};  ///< the id of the row's last channel
    std::uint32_t next_free = none;
    row* next_ready = nullptr;
    message_list messages{};
    bool has_news = false;
    bool is_ready = false;  ///< in the list, where a destroyed channel may be, too
    // The reasons not to hand out its arrivals.
    static constexpr std::uint8_t held = 1;     ///< until `release`
    static constexpr std::uint8_t in_turn = 2;  ///< until `end_turn`
    std::uint8_t keeps = 0;

    [[nodiscard]] bool has_arrivals() const noexcept { return has_news || !messages.is_empty(); }
    [[nodiscard]] bool is_in_turn() const noexcept { return (keeps & in_turn) != 0; }
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
    /// The index plus 1; 0 if there is none.
    [[nodiscard]] std::uint32_t find(std::uint32_t number) const noexcept {
      const std::uint16_t* const page = pages_.get()[number >> low_bits & (length - 1)];
      return page != nullptr ? page[number & (length - 1)] : 0;
    }

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
    std::uint32_t count = 0;
    bool is_short = false;  ///< the pool has had too few places
    bool has_more = false;  ///< for other threads
  };
  /// Takes arrivals, and refills the shared receive queue.
  [[gnu::always_inline]] inline found take_arrivals(std::span<arrival> into) noexcept;
  [[nodiscard]] result<found> look_for_arrivals(std::span<arrival> into) noexcept;
  [[nodiscard]] result<found> look_for_turn(hub_turn& taken) noexcept;
  template <class Find>
  [[nodiscard]] result<found> wait_until(Find find, const wait_limit& limit) noexcept;
  template <class Find>
  [[nodiscard]] result<found> wait_for(Find find, call_limit limit) noexcept;
  [[nodiscard, gnu::noinline]] result<std::span<arrival>> wait_longer(std::span<arrival> into,
                                                                      call_limit limit) noexcept;
  /// Wakes the threads that wait for arrivals: some are there without a completion.
  void wake_waiting() noexcept;
  void take_events() noexcept;

  // \pre the lock is taken, from here on.

  /// The empty slots of a caller.
  struct empty_slots {
    arrival* next = nullptr;
    arrival* end = nullptr;

    void fill(channel_id source, message&& one) noexcept {
      next->source = source;
      next->message = std::move(one);
      ++next;
    }
  };
  /// Processes available completions until the slots are full; without slots, all of them. Messages
  /// go to the slots, or to the lists of their channels if others come first. \returns whether
  /// there may be more completions. A caller that sleeps has to process all, since only new ones
  /// wake it.
  [[gnu::always_inline]] inline void take_completions(empty_slots& into) noexcept;
  void take_all_completions() noexcept;
  void hand_out(const ibv_wc& completion) noexcept;
  [[gnu::always_inline]] inline void hand_out_shared(const ibv_wc& completion,
                                                     empty_slots& into) noexcept;
  void fail_shared(const ibv_wc& completion, std::uint32_t place, row* of) noexcept;
  /// Fills slots from the lists of the channels.
  void take_listed(empty_slots& into) noexcept;
  /// Removes the first channel of the list. \pre there is one
  [[nodiscard]] row& take_ready() noexcept;
  /// The result of a look that has found this many arrivals.
  [[nodiscard, gnu::always_inline]] inline result<found> found_some(std::uint32_t count,
                                                                    bool has_more) noexcept;
  [[nodiscard]] result<found> found_none() noexcept;
  void note_news(row& of) noexcept;
  /// Puts a channel that has arrivals into the list, unless they are held.
  void note_ready(row& one) noexcept {
    if (one.is_ready || one.keeps != 0) return;
    one.is_ready = true;
    one.next_ready = nullptr;
    (first_ready_ == nullptr ? first_ready_ : last_ready_->next_ready) = &one;
    last_ready_ = &one;
  }
  [[nodiscard]] hub_turn begin_turn(row& mine) noexcept;
  /// \pre there is one
  [[nodiscard]] message take_first(message_list& from) noexcept {
    pool_places& places = *pool_->places();
    const std::uint32_t place = from.take_first(places);
    return {&places, place, places.record(place).work.bytes_filled(0)};
  }
  void drop_arrivals(row& of) noexcept;
  void free_index(std::uint32_t index) noexcept;
  [[nodiscard]] bool is_due() const noexcept {
    return posted_ < depth_ && (depth_ - posted_ >= refill_ || posted_ == 0);
  }
  /// Posts shared receives in batches while there is room for one, and places.
  void refill() noexcept {
    if (is_due()) [[unlikely]]
      post_receives();
  }
  void post_receives() noexcept;
  /// Takes a place back that the device has filled, or not.
  [[gnu::always_inline]] void take_back(std::uint32_t place) noexcept {
    assert(is_posted_.get()[place]);
    is_posted_.get()[place] = false;
    --posted_;
    if (pool_->places()->is_watched()) [[unlikely]]
      end_watch(place);
  }
  void end_watch(std::uint32_t place) noexcept;
  /// The channel whose queue pair has this number; null if there is none.
  [[nodiscard]] row* row_of(std::uint32_t number) noexcept {
    const std::uint32_t next_index = numbers_.find(number);
    return next_index != 0 ? &rows_.get()[next_index - 1] : nullptr;
  }

  unsigned references_ = 1;
  protection_domain domain_;
  completion_queue queue_;
  std::uint32_t channels_;
  wait_mode waiting_;
  std::optional<message_pool> pool_{};
  std::optional<shared_receive_queue> receives_{};
  std::uint32_t depth_ = 0;  ///< how many shared receives there are to be
  std::uint32_t refill_ = 0;

  brief_lock lock_{};
  int lost_ = 0;  ///< what polling has failed with
  completion_queue_accounting room_;
  std::uint32_t size_ = 0;
  owned<row[]> rows_{};
  std::uint32_t first_free_ = 0;
  row* first_ready_ = nullptr;
  row* last_ready_ = nullptr;
  number_table numbers_{};
  owned<bool[]> is_posted_{};  ///< for each place of the pool
  std::uint32_t posted_ = 0;
  receive_batch batch_{};
  std::optional<error> refill_failure_{};
  owned<hub_table> table_{};
  bool is_table_closed_ = false;

  async_listener listener_;            ///< for failures during a wait
  hub_events events_{};                ///< other than completions
  std::uint32_t waiting_threads_ = 0;  ///< atomic
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
