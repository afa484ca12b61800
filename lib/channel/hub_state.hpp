// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/channel_hub.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/detail/hub_reference.hpp>
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

  hub_reference hub{};
  channel_id id{};

 private:
  friend class hub_state;

  [[nodiscard]] result<void> make_room(std::uint64_t requests) noexcept;
  void put(const ibv_wc& completion) noexcept;

  // The hub's lock guards these.
  std::uint32_t number_ = 0;  ///< of the queue pair; none has this one
  std::uint64_t expected_ = 0;
  bool has_news_ = false;
  bool knows_failure_ = false;  ///< of a shared receive

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
  /// Its index may be another's.
  void leave(hub_member& member) noexcept;

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
  /// What a shared receive has brought, until somebody is given it.
  struct received_message {
    channel_id source;
    std::uint32_t place;
    completed_work work;
  };
  /// A queue in an array whose size is a power of 2, with room for all that there can be.
  template <class Value>
  class ring {
   public:
    [[nodiscard]] bool allocate(std::uint64_t most) noexcept;
    [[nodiscard]] bool is_empty() const noexcept { return first_ == end_; }
    void push(const Value& value) noexcept { at(end_++) = value; }
    Value pop() noexcept { return at(first_++); }
    /// Takes out those of which `leaves` holds.
    template <class Leaves>
    void erase_if(Leaves leaves) noexcept {
      std::uint64_t kept = first_;
      for (std::uint64_t i = first_; i != end_; ++i)
        if (!leaves(at(i))) at(kept++) = at(i);
      end_ = kept;
    }

   private:
    struct cell {
      alignas(Value) std::byte bytes[sizeof(Value)];
    };
    [[nodiscard]] Value& at(std::uint64_t index) noexcept {
      return *reinterpret_cast<Value*>(cells_.get()[index & mask_].bytes);
    }
    owned<cell[]> cells_{};
    std::uint64_t mask_ = 0;
    std::uint64_t first_ = 0;
    std::uint64_t end_ = 0;
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
  };
  [[nodiscard]] result<found> look_for(std::span<arrival> into) noexcept;

  // \pre the lock is taken, from here on.

  /// Hands out all completions that there are: who sleeps afterwards is woken by new ones only.
  void take_those_there() noexcept;
  void hand_out(const ibv_wc& completion) noexcept;
  void hand_out_shared(const ibv_wc& completion) noexcept;
  void note_news(hub_member& member) noexcept;
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
  struct row {
    hub_member* member;  ///< null if the index is free
    std::uint32_t generation;
    std::uint32_t next_free;
  };
  owned<row[]> rows_{};
  std::uint32_t first_free_ = 0;
  number_table numbers_{};
  ring<channel_id> news_{};
  ring<received_message> received_{};
  owned<bool[]> is_posted_{};  ///< of each place
  std::uint32_t posted_ = 0;
  std::optional<error> refill_failure_{};
  async_listener listener_;  ///< of what fails while somebody waits
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
