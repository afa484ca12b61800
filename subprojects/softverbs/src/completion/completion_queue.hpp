// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/event_queue.hpp"
#include "base/extensible.hpp"
#include "base/session.hpp"
#include "machine/served.hpp"
#include "memory/queue_array.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace softverbs {

class completion_queue;
class engine;
class open_device;
struct completion;

/// The owner of work requests that complete in a completion queue.
class work_queues {
 public:
  /// Called, under the engine's lock, when a delayed completion was lost because the completion
  /// queue is broken.
  virtual void late_completion_lost() = 0;

 protected:
  ~work_queues() = default;

 private:
  friend class completion_queue;
  std::uint64_t& last_of(const completion& entry) noexcept;
  /// The numbers of the owner's last receive completion and of its last send completion, in this
  /// order; 0 for none. Protected by the lock of the completion queue that contains them.
  std::array<std::uint64_t, 2> last_{};
};

struct completion_channel final : ibv_comp_channel {
  event_queue<completion_queue*> events;
};

/// A completion in a completion queue.
struct completion {
  ibv_wc wc;
  /// Null if the owner has been destroyed or reset.
  work_queues* owner;
  /// The number of the owner's previous completion of the same kind (send or receive) in this
  /// queue; 0 for none.
  std::uint64_t previous;
  /// The variable that is set to `frees_up_to` when this completion is polled. It holds the
  /// position up to which the owner's queue is free. Null if that part of the queue is already
  /// free. This member points to the variable and not to the owner, because an access through the
  /// owner would take one more cache line, which is not in the cache if there are thousands of
  /// queue pairs.
  std::atomic<std::uint32_t>* freed;
  std::uint32_t frees_up_to;
  /// The tag of the flow rule that steered the frame here.
  std::uint32_t flow_tag;
  bool of_send_queue;
  bool solicited;
  /// True if completions of other owners may overtake this one while it is held back.
  bool overtakable;
  /// The time of the completion, by the device's clock and by the wall clock. Each is set only if
  /// the program requested it.
  std::uint64_t timestamp;
  std::uint64_t wallclock;
  /// The delay of the completion. Once the completion is held back, the time at which it is due.
  nanoseconds delay;
};

/// The options of an extended completion queue.
struct completion_queue_options {
  /// True if the program can read completions one by one, with ibv_start_poll and ibv_next_poll.
  bool one_by_one = false;
  /// Bits of ibv_create_cq_wc_flags.
  std::uint64_t fields = 0;
  bool single_threaded = false;
  bool ignores_overrun = false;
  /// A parent domain, or null.
  protection_domain* domain = nullptr;
};

using completion_places = queue_array<completion, queue_content::completions>;

/// A completion queue. It has its own lock. The functions that use its completions take this lock,
/// unless their comments say otherwise.
class completion_queue final : public extensible_cq, private timed {
 public:
  completion_queue(open_device& owner, std::uint32_t capacity, completion_channel* channel,
                   void* user_context, const completion_queue_options& options = {});
  completion_queue(const completion_queue&) = delete;
  completion_queue& operator=(const completion_queue&) = delete;
  ~completion_queue();

  /// Adds a completion. Returns false if the completion is lost, because the queue is broken or
  /// full. Losing a completion breaks the queue. If the queue ignores overruns, it drops its oldest
  /// completion instead. A delayed completion is added later; `late_completion_lost` reports its
  /// loss. Requires the engine's lock if the completion has a delay.
  bool push(const completion& entry);

  /// Implements ibv_poll_cq. Returns the number of completions, or a negative errno value if the
  /// queue is broken and empty.
  int poll(int wanted, ibv_wc* out) noexcept;

  /// Moves the next completion to `current`. Returns 0, ENOENT if the queue is empty, or EIO if it
  /// is broken and empty.
  int advance() noexcept;
  /// The completion whose fields the program reads. Does not take the lock.
  const completion& current() const noexcept { return current_; }
  /// The session of a thread that reads completions one by one; null if the queue doesn't support
  /// this. This function and the next two don't take the lock.
  session* reading() noexcept { return options_.one_by_one ? &reading_ : nullptr; }
  /// The same session, for a queue that is known to support reading completions one by one.
  session& reading_one_by_one() noexcept { return reading_; }
  /// True if the calling thread is reading completions one by one.
  bool is_being_read_here() const noexcept { return reading_.is_own(); }

  void request_notification(bool solicited_only) noexcept;

  /// Drops the owner's delayed completions, and the other completions of its sends or of its
  /// receives. Requires the engine's lock.
  void forget(work_queues& owner, bool of_send_queue) noexcept;

  /// Allocates entries, with which `resize` can replace the current ones. Takes no lock.
  completion_places places(std::uint32_t capacity) const { return {capacity, options_.domain}; }
  /// Moves the completions to `places`, and then swaps `places` with the queue's previous entries.
  /// Returns 0 or an errno value.
  int resize(completion_places& places, std::uint32_t capacity) noexcept;

  const completion_queue_options& options() const noexcept { return options_; }
  softverbs::engine& engine() const noexcept;
  bool usable() const noexcept;

  /// Detaches the queue from its channel, cancels its deadline, and drops its unread events.
  /// Requires the engine's lock.
  void detach() noexcept;

  /// Does not take the lock, so that a poll of an empty queue is cheap.
  bool empty() const noexcept { return count_.load(std::memory_order_acquire) == 0; }

  /// True if the loss of a completion has broken the queue. Does not take the lock.
  bool is_broken() const noexcept { return broken_.load(std::memory_order_relaxed); }

  // The engine's lock protects these counters.
  unsigned queue_pairs = 0;
  unsigned completion_events_reported = 0;
  unsigned async_events_reported = 0;

 private:
  enum class notify : std::uint8_t { off, solicited, any };
  // The next functions require the lock.
  void set_notify(notify when) noexcept;
  bool has_field(std::uint64_t field) const noexcept { return (options_.fields & field) != 0; }
  completion& at(std::uint32_t place) noexcept;
  const completion& take() noexcept;
  /// Sets the number of completions to `count`, and removes those at the front whose owner has been
  /// destroyed or reset.
  void skip_the_dead(std::uint32_t count) noexcept;
  void drop_the_dead() noexcept;
  /// Adds the completion once its own delay and the delays of the completions that it can't
  /// overtake are over. Returns false if the completion need not wait, and is lost.
  bool hold_back(const completion& entry);
  bool give_out(const completion& entry);
  void tell_channel();

  /// Delivers completions whose delay is over. Takes the lock.
  void on_deadline(nanoseconds time) override;

  open_device& owner_;
  const completion_queue_options options_;
  // The lock protects all following members but `reading_` and `current_`, which belong to the
  // thread that reads completions one by one.
  std::mutex lock_;
  completion_places ring_;
  std::uint32_t capacity_;
  std::uint32_t first_ = 0;
  std::uint64_t first_number_ = 1;
  std::atomic<std::uint32_t> count_{0};
  std::uint32_t dead_ = 0;  ///< the number of completions without an owner
  notify notify_ = notify::off;
  std::atomic<bool> broken_{false};
  /// The delayed completions, in the order in which they are due.
  std::deque<completion> held_back_;
  session reading_;
  completion current_{};
};

}  // namespace softverbs
