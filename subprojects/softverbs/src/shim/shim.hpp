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

/// The same faults in front of the devices of any provider: what the program calls is looked at
/// first, what it polls is changed, held back, or told otherwise.
namespace softverbs::shim {

/// What was changed of a device, by its name; open or not.
struct device_state {
  std::string name;
  std::bitset<256> ports_down;
  bool broken = false;
};

/// The functions that a provider has put into its own tables, which stand aside for this library's.
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

/// An open device.
struct context_record {
  ibv_context* verbs = nullptr;
  device_state* device = nullptr;
  unsigned ports = 1;
  provided theirs{};
  /// Those of its memory; null before there is some.
  std::atomic<decltype(ibv_dm::memcpy_to_dm)> memcpy_to_dm{nullptr};
  std::atomic<decltype(ibv_dm::memcpy_from_dm)> memcpy_from_dm{nullptr};
  /// That of its work queues, likewise.
  std::atomic<decltype(ibv_wq::post_recv)> post_wq_recv{nullptr};
  bell events;
  /// While a call of the device needs its own descriptor in ibv_context::async_fd.
  std::mutex descriptor_lock;
  /// Not those of the device.
  std::deque<ibv_async_event> raised;
  std::unordered_map<std::uint32_t, pair_record*> pairs;
};

struct queue_record;

/// The program's channel; the device's lies behind it.
struct channel_record : ibv_comp_channel {
  ibv_comp_channel* theirs = nullptr;
  context_record* opened = nullptr;
  bell events;
  std::vector<queue_record*> queues;
};

/// A completion that was taken from the device, with all that can be read of it.
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
  /// With the functions of the device, if it is one that is read one by one.
  std::optional<ibv_cq_ex> theirs;
  /// Taking from the device, and whoever reads one by one what was held here.
  session reading{false};
  /// By when the program may have them; of the same time, in the order in which they came.
  std::multimap<nanoseconds, completion> waiting;
  /// Before which none comes any more that doesn't overtake.
  nanoseconds floor = 0;
  bool armed = false;
  nanoseconds armed_at = 0;
  /// Events that the device knows nothing of, and whose acknowledgements it must not count.
  unsigned events_raised = 0;
  completion shown;
  /// Set while the program reads that one.
  std::atomic<bool> shows{false};
};

struct pair_record {
  ibv_qp* pair = nullptr;
  context_record* opened = nullptr;
  /// Before which none of its own completions comes.
  nanoseconds floor = 0;
  /// All that completes from here on is flushed, until it is reset.
  bool failed = false;
  decltype(ibv_qp_ex::wr_complete) wr_complete = nullptr;
};

/// How much there is to attend to: 1 for any faults, and 1 for each completion held back and each
/// queue pair that was failed. As long as it is 0, calls go straight to the device.
inline std::atomic<std::size_t> attention{0};
inline bool is_idle() noexcept { return attention.load(std::memory_order_relaxed) == 0; }

/// All that the process has. What the program calls for may be looked up without the lock, since
/// nobody may take it away meanwhile; all else needs it. A session is begun before it is taken, and
/// the device may be called while it is held.
struct everything {
  std::mutex lock;
  faults::fault_list list;
  bool any_set = false;
  /// Changes of state, for devices that nobody has asked for yet.
  std::vector<faults::effect> changes;
  std::list<device_state> devices;
  descriptor clock = make_timer();
  pointer_table<context_record> contexts;
  pointer_table<queue_record> queues;
  pointer_table<pair_record> pairs;
  /// By the program's channel, and by the device's, which completion queues name.
  pointer_table<channel_record> channels;
  std::vector<context_record*> open;
  std::vector<channel_record*> open_channels;
};
everything& all() noexcept;

// Under the lock.

device_state& state_of(const char* device);
/// A change of state, with its events.
void change_state(const faults::effect& what);
/// What has become due since the last time.
void keep_time();
/// When the program has to hear of completions that were held back.
void set_alarm(channel_record& channel) noexcept;
/// Forgets what a queue pair that is reset or gone has completed.
void forget_completions(std::uint32_t pair, const context_record& opened) noexcept;

// Without it.

/// Whether a call has to fail. Calls that a library makes on behalf of one that the program has
/// made don't count.
class entry {
 public:
  entry() noexcept { ++depth; }
  entry(const entry&) = delete;
  entry& operator=(const entry&) = delete;
  ~entry() { --depth; }

  /// Without a context, it works on a broken device, too.
  std::optional<faults::answer> strike(std::size_t verb, const ibv_context* context) const {
    if (is_idle() || depth > 1) return std::nullopt;
    return strike_now(verb, context);
  }

 private:
  static std::optional<faults::answer> strike_now(std::size_t verb, const ibv_context* context);
  static thread_local int depth;
};

/// Those of SOFTVERBS_FAULTS, at the first call; false if they make no sense.
bool read_environment() noexcept;

/// 0, or errno.
int attend_to(ibv_context* verbs) noexcept;
/// Puts things back as the device made them. The record stays, to be freed or wrapped again.
void stand_aside(context_record& opened) noexcept;
void stand_in_front(context_record& opened) noexcept;

int attend_to(ibv_cq* queue, channel_record* channel, bool one_by_one) noexcept;
int attend_to(ibv_qp* pair) noexcept;
/// Null is left alone. Of a device whose memory is of several kinds, those of the first.
void attend_to(ibv_dm* memory) noexcept;

/// For as long as it lives, ibv_context::async_fd is the device's own: the kernel is told of it
/// when objects are made that have events. Devices without one in the kernel don't need it.
class own_descriptor {
 public:
  explicit own_descriptor(ibv_context* verbs) noexcept;
  own_descriptor(const own_descriptor&) = delete;
  own_descriptor& operator=(const own_descriptor&) = delete;
  ~own_descriptor();

 private:
  context_record* opened_;
};

/// A new object for a queue pair; null if it can't be attended to, and then it is destroyed.
ibv_qp* attended(ibv_qp* pair);
/// The same of one that `make` has from the device, which may need its descriptor for it.
template <typename Make>
ibv_qp* attended(ibv_context* verbs, Make make) {
  ibv_qp* pair = nullptr;
  {
    const own_descriptor shown(verbs);
    pair = make();
  }
  return attended(pair);
}

/// What a program's channel stands for.
ibv_comp_channel* theirs(ibv_comp_channel* channel) noexcept;

/// Takes from the device what it has, and judges it. In a session of the queue. 0, or what the
/// device told: negative from ibv_poll_cq, an errno from ibv_start_poll.
int take_in(queue_record& queue, ibv_poll_cq_attr* one_by_one);

/// What stands in the tables of contexts, completion queues and queue pairs.
void stand_in_front(queue_record& queue) noexcept;
int poll_cq(ibv_cq* queue, int wanted, ibv_wc* out);
int req_notify_cq(ibv_cq* queue, int solicited_only);
int wr_complete(ibv_qp_ex* pair);

}  // namespace softverbs::shim

/// Returns from a call of `verb` that has to fail.
#define SHIM_FAULT(verb, context)                                                         \
  const ::softverbs::shim::entry here_;                                                   \
  if (const auto failure_ = here_.strike(::softverbs::faults::number_of(#verb), context)) \
  return *failure_
