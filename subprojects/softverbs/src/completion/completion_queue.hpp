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

/// Whose work requests complete.
class work_queues {
 public:
  /// It came too late for a queue that is broken. Under the engine's lock.
  virtual void late_completion_lost() = 0;

 protected:
  ~work_queues() = default;

 private:
  friend class completion_queue;
  std::uint64_t& last_of(const completion& entry) noexcept;
  /// The numbers of the last completions of its receives and of its sends, 0 for none; under the
  /// lock of the queue that they are in.
  std::array<std::uint64_t, 2> last_{};
};

struct completion_channel final : ibv_comp_channel {
  event_queue<completion_queue*> events;
};

/// What waits in a completion queue.
struct completion {
  ibv_wc wc;
  /// Null if it is of a queue pair that is gone.
  work_queues* owner;
  /// The number of the owner's one before in this queue, of the same kind; 0 for none.
  std::uint64_t previous;
  /// The owner's queue is free up to `frees_up_to`, once this has been polled; null if it is so
  /// already. The place itself, because asking the owner for it takes another cache line, which
  /// with thousands of queue pairs has to be fetched.
  std::atomic<std::uint32_t>* freed;
  std::uint32_t frees_up_to;
  /// Of the rule by which a frame came.
  std::uint32_t flow_tag;
  bool of_send_queue;
  bool solicited;
  /// While it is held back, by those of other queue pairs.
  bool overtakable;
  /// When it came, by the device's clock and by the wall's; if the program asked for it.
  std::uint64_t timestamp;
  std::uint64_t wallclock;
  /// How late it comes; or when, once it is held back.
  nanoseconds delay;
};

/// What a program that creates an extended completion queue may ask for besides.
struct completion_queue_options {
  /// ibv_start_poll and what follows are there.
  bool one_by_one = false;
  /// Bits of ibv_create_cq_wc_flags.
  std::uint64_t fields = 0;
  bool single_threaded = false;
  bool ignores_overrun = false;
  /// A parent domain, or null.
  protection_domain* domain = nullptr;
};

using completion_places = queue_array<completion, queue_content::completions>;

/// A completion queue. Has a lock of its own, which all functions take that don't say otherwise.
class completion_queue final : public extensible_cq, private timed {
 public:
  completion_queue(open_device& owner, std::uint32_t capacity, completion_channel* channel,
                   void* user_context, const completion_queue_options& options = {});
  completion_queue(const completion_queue&) = delete;
  completion_queue& operator=(const completion_queue&) = delete;
  ~completion_queue();

  /// What the device grants for a number of entries asked for.
  static std::uint32_t granted(std::uint32_t asked) noexcept;

  /// False if it is full: then the completion is lost, and the queue is broken. Under the engine's
  /// lock; without it, only if the completion isn't to be late.
  bool push(const completion& entry);

  /// As ibv_poll_cq: how many were given, negative if the queue is broken and
  /// there are none left.
  int poll(int wanted, ibv_wc* out) noexcept;

  /// Takes out the next completion for `current`; 0, ENOENT or EIO.
  int advance() noexcept;
  /// What the functions that read a field read, without the lock.
  const completion& current() const noexcept { return current_; }
  // No lock is needed for these.
  /// Of a thread that reads one by one; null if this queue can't be read so.
  session* reading() noexcept { return options_.one_by_one ? &reading_ : nullptr; }
  /// The same of a queue that is known to be read so.
  session& reading_one_by_one() noexcept { return reading_; }
  /// Whether this thread is the one that reads.
  bool is_being_read_here() const noexcept { return reading_.is_own(); }

  void request_notification(bool solicited_only) noexcept;

  /// Drops what is left of a queue pair's sends or receives, which complete here. Under the
  /// engine's lock.
  void forget(work_queues& owner, bool of_send_queue) noexcept;

  /// Places that it may have instead of its own. Without any lock.
  completion_places places(std::uint32_t capacity) const { return {capacity, options_.domain}; }
  /// Changes places with those; 0 or an errno.
  int resize(completion_places& places, std::uint32_t capacity) noexcept;

  const completion_queue_options& options() const noexcept { return options_; }
  softverbs::engine& engine() const noexcept;
  bool usable() const noexcept;

  /// Takes it off its channel. What the program has been told about it so far
  /// stays readable. Under the engine's lock.
  void detach() noexcept;

  /// Without the lock: a poller looks here first.
  bool empty() const noexcept { return count_.load(std::memory_order_acquire) == 0; }

  /// Completions were lost. Without the lock.
  bool is_broken() const noexcept { return broken_.load(std::memory_order_relaxed); }

  // The engine's lock protects these.
  unsigned queue_pairs = 0;
  unsigned completion_events_reported = 0;
  unsigned async_events_reported = 0;

 private:
  enum class notify : std::uint8_t { off, solicited, any };
  // These don't take the lock: whoever calls them has it.
  void set_notify(notify when) noexcept;
  bool has_field(std::uint64_t field) const noexcept { return (options_.fields & field) != 0; }
  completion& at(std::uint32_t place) noexcept;
  const completion& take() noexcept;
  /// The first one is never of a queue pair that is gone.
  void skip_the_dead(std::uint32_t count) noexcept;
  void drop_the_dead() noexcept;
  void hold_back(const completion& entry);
  bool give_out(const completion& entry);
  void tell_channel();

  /// Gives out what was delayed until now. Takes the lock.
  void on_deadline(nanoseconds time) override;

  open_device& owner_;
  const completion_queue_options options_;
  // The lock protects all from here on but `reading_` and `current_`, which are the reader's.
  std::mutex lock_;
  completion_places ring_;
  std::uint32_t capacity_;
  std::uint32_t first_ = 0;
  std::uint64_t first_number_ = 1;
  std::atomic<std::uint32_t> count_{0};
  std::uint32_t dead_ = 0;  ///< of `count_`
  notify notify_ = notify::off;
  std::atomic<bool> broken_{false};
  /// In the order in which they come.
  std::deque<completion> held_back_;
  session reading_;
  completion current_{};
};

}  // namespace softverbs
