// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "base/session.hpp"
#include "faults/failing_verbs.hpp"
#include "faults/fault_list.hpp"
#include "shim/bell.hpp"
#include "shim/pointer_table.hpp"

#include <infiniband/verbs.h>

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

/// Applies the faults of software devices, except faults of packets and lost peers, to the devices
/// of any provider. Calls are checked before they reach the provider, and completions are changed
/// or held back before the program gets them.
namespace softverbs::shim {

/// The changes that faults have made to a device. Devices are identified by name. The state is
/// created when the device is first opened, and is kept when the device is closed.
struct device_state {
  std::string name;
  std::bitset<256> ports_down;
  bool broken = false;
};

/// The functions in the provider's tables that this library's functions replace.
struct provided {
  ibv_context_ops ops;
  decltype(verbs_context::query_port) query_port;
  decltype(verbs_context::query_device_ex) query_device_ex;
  decltype(verbs_context::query_rt_values) query_rt_values;
  decltype(verbs_context::create_cq_ex) create_cq_ex;
  decltype(verbs_context::create_qp_ex) create_qp_ex;
  decltype(verbs_context::create_srq_ex) create_srq_ex;
  decltype(verbs_context::ibv_create_flow) create_flow;
  decltype(verbs_context::ibv_destroy_flow) destroy_flow;
  decltype(verbs_context::advise_mr) advise_mr;
  decltype(verbs_context::open_xrcd) open_xrcd;
  decltype(verbs_context::close_xrcd) close_xrcd;
  decltype(verbs_context::open_qp) open_qp;
  decltype(verbs_context::create_wq) create_wq;
  decltype(verbs_context::modify_wq) modify_wq;
  decltype(verbs_context::destroy_wq) destroy_wq;
  decltype(verbs_context::create_rwq_ind_table) create_rwq_ind_table;
  decltype(verbs_context::destroy_rwq_ind_table) destroy_rwq_ind_table;
  decltype(verbs_context::alloc_dm) alloc_dm;
  decltype(verbs_context::free_dm) free_dm;
  decltype(verbs_context::reg_dm_mr) reg_dm_mr;
  decltype(verbs_context::alloc_td) alloc_td;
  decltype(verbs_context::dealloc_td) dealloc_td;
  decltype(verbs_context::alloc_parent_domain) alloc_parent_domain;
};

struct pair_record;

/// A device that the program has opened.
struct context_record {
  ibv_context* verbs = nullptr;
  device_state* device = nullptr;
  unsigned ports = 1;
  provided theirs{};
  /// The functions of its device memory; null before there is any.
  std::atomic<decltype(ibv_dm::memcpy_to_dm)> memcpy_to_dm{nullptr};
  std::atomic<decltype(ibv_dm::memcpy_from_dm)> memcpy_from_dm{nullptr};
  /// The function of its work queues; null before any is created.
  std::atomic<decltype(ibv_wq::post_recv)> post_wq_recv{nullptr};
  bell events;
  /// Held during calls of the provider that need the device's own descriptor in
  /// ibv_context::async_fd.
  std::mutex descriptor_lock;
  /// Events that this library has raised, and the program has not read yet.
  std::deque<ibv_async_event> raised;
  /// The records of its queue pairs, by number. An entry may be null.
  std::unordered_map<std::uint32_t, pair_record*> pairs;
};

struct queue_record;

/// The program's channel, which this library puts in front of the device's channel.
struct channel_record : ibv_comp_channel {
  ibv_comp_channel* theirs = nullptr;
  context_record* opened = nullptr;
  bell events;
  std::vector<queue_record*> queues;
};

/// A completion that was taken from the device, with all fields that can be read.
struct completion {
  ibv_wc wc{};
  std::uint64_t timestamp = 0;
  std::uint64_t wall_clock = 0;
  std::uint16_t vlan = 0;
  std::uint32_t flow_tag = 0;
  ibv_wc_tm_info tag{};
};

struct queue_record {
  ibv_cq* queue = nullptr;
  context_record* opened = nullptr;
  channel_record* channel = nullptr;
  /// A copy of the queue with the device's functions, if its completions are read one by one.
  std::optional<ibv_cq_ex> theirs;
  /// Held while completions are moved from the device to `waiting`, and while the program reads
  /// those in `waiting` one by one (`ibv_start_poll` to `ibv_end_poll`).
  session reading{false};
  /// The completions held back, ordered by the time at which the program may get them. Those with
  /// equal times are in order of arrival.
  std::multimap<nanoseconds, completion> waiting;
  /// The time before which no further completion is delivered. A delayed completion raises this
  /// time, unless others may overtake that completion.
  nanoseconds floor = 0;
  bool armed = false;
  nanoseconds armed_at = 0;
  /// The number of events that this library has raised. Their acknowledgements must not reach the
  /// device.
  unsigned events_raised = 0;
  completion shown;
  /// Set while the program reads `shown`.
  std::atomic<bool> shows{false};
};

struct pair_record {
  ibv_qp* pair = nullptr;
  context_record* opened = nullptr;
  /// The time before which no further completion of this queue pair is delivered.
  nanoseconds floor = 0;
  /// True if its successful completions are reported as flushed until the queue pair is reset.
  bool failed = false;
  decltype(ibv_qp_ex::wr_complete) wr_complete = nullptr;
};

/// The amount of state that calls must consider: 1 if any faults were set since the last reset,
/// plus 1 for each completion that is held back here or that the program is reading from here, plus
/// 1 for each queue pair that was made to fail. While it is 0, posts and polls go straight to the
/// device.
inline std::atomic<std::size_t> attention{0};
inline bool is_idle() noexcept { return attention.load(std::memory_order_relaxed) == 0; }

/// The state of the process. The object that a verb is called for may be looked up without the
/// lock, because the program must not destroy it during the call. Everything else requires the
/// lock. A session is begun before the lock is taken, and the device may be called while the lock
/// is held.
struct everything {
  std::mutex lock;
  faults::fault_list list;
  bool any_set = false;
  /// All changes of state since the last reset. They are applied to devices that are opened later.
  std::vector<faults::effect> changes;
  std::list<device_state> devices;
  descriptor clock = make_timer();
  pointer_table<context_record> contexts;
  pointer_table<queue_record> queues;
  pointer_table<pair_record> pairs;
  /// Contains each record twice: by the program's channel, and by the device's channel, to which
  /// completion queues refer.
  pointer_table<channel_record> channels;
  std::vector<context_record*> open;
  std::vector<channel_record*> open_channels;
};
everything& all() noexcept;

// The following functions require the lock.

device_state& state_of(const char* device);
/// Applies an effect that changes the state of a port or device, and raises the corresponding
/// events.
void change_state(const faults::effect& what);
/// Applies the faults that have become due.
void keep_time();
/// Makes the channel's descriptor readable when a held-back completion becomes due, if the program
/// has requested an event for its queue.
void set_alarm(channel_record& channel) noexcept;
/// Forgets the held-back completions of a queue pair or work queue that was reset or destroyed.
void forget_completions(std::uint32_t pair, const context_record& opened) noexcept;

// The following functions must be called without the lock, unless their comments say otherwise.

/// Decides whether a call of the program has to fail. Nested calls, which a library makes during
/// that call, are not affected.
class entry {
 public:
  entry() noexcept { ++depth; }
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;
  ~entry() { --depth; }

  /// Returns the result of a call that has to fail, or nothing if it may proceed. If `context` is
  /// null, a broken device doesn't make the call fail.
  std::optional<faults::answer> strike(std::size_t verb, const ibv_context* context) const {
    if (is_idle() || depth > 1) return std::nullopt;
    return strike_now(verb, context);
  }

 private:
  static std::optional<faults::answer> strike_now(std::size_t verb, const ibv_context* context);
  static thread_local int depth;
};

/// The first call sets the faults in SOFTVERBS_FAULTS. Returns false if these faults are not valid
/// or could not be set.
bool read_environment() noexcept;

/// Starts to apply faults to an object. Returns 0 or an errno value.
int attend_to(ibv_context* verbs) noexcept;
/// Restores the functions of the provider. The record remains, to be freed, or to be used again by
/// `stand_in_front`. Both functions require the lock.
void stand_aside(context_record& opened) noexcept;
void stand_in_front(context_record& opened) noexcept;

int attend_to(ibv_cq* queue, channel_record* channel, bool one_by_one) noexcept;
int attend_to(ibv_qp* pair) noexcept;
/// Applies faults to device memory. Does nothing for null. If objects for the device memory of one
/// context have different copy functions, faults affect only copies by the functions of the first
/// one.
void attend_to(ibv_dm* memory) noexcept;

/// While this object exists, ibv_context::async_fd is the device's own descriptor. Drivers pass it
/// to the kernel when they create objects with events. Has no effect on a context without a command
/// descriptor, because its device is not in the kernel.
class own_descriptor {
 public:
  explicit own_descriptor(ibv_context* verbs) noexcept;
  own_descriptor(const own_descriptor&) = delete;
  own_descriptor& operator=(const own_descriptor&) = delete;
  ~own_descriptor();

 private:
  context_record* opened_;
};

/// Starts to apply faults to a new queue pair. If that fails, destroys the queue pair, and returns
/// null with errno set.
ibv_qp* attended(ibv_qp* pair);
/// Calls `make`, which creates a queue pair, while ibv_context::async_fd is the device's own
/// descriptor. Then starts to apply faults to the queue pair.
template <typename Make>
ibv_qp* attended(ibv_context* verbs, Make make) {
  ibv_qp* pair = nullptr;
  {
    const own_descriptor shown(verbs);
    pair = make();
  }
  return attended(pair);
}

/// Returns the device's channel behind a program's channel.
ibv_comp_channel* theirs(ibv_comp_channel* channel) noexcept;

/// Takes completions from the device, and judges them. Stops when the device has no more of them,
/// or when this library holds as many as the queue can hold. Must be called in a session of the
/// queue. Returns 0, or the error of the device's function: the negative number that ibv_poll_cq
/// has returned, or the errno value that ibv_start_poll has returned. If there is no room for any
/// completion and `one_by_one` isn't null, returns ENOENT.
int take_in(queue_record& queue, ibv_poll_cq_attr* one_by_one);

/// `stand_in_front` replaces the functions of an extended completion queue, and requires the lock.
/// The functions below replace those in the tables of contexts and queue pairs.
void stand_in_front(queue_record& queue) noexcept;
int poll_cq(ibv_cq* queue, int wanted, ibv_wc* out);
int req_notify_cq(ibv_cq* queue, int solicited_only);
int wr_complete(ibv_qp_ex* pair);

}  // namespace softverbs::shim

/// Returns from the calling function if faults make this call of `verb` fail.
#define SHIM_FAULT(verb, context)                                                         \
  const ::softverbs::shim::entry here_;                                                   \
  if (const auto failure_ = here_.strike(::softverbs::faults::number_of(#verb), context)) \
  return *failure_
