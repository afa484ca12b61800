// SPDX-License-Identifier: Apache-2.0
// Completions from the device, and the queue pairs that faults make fail.
#include "faults/failing_verbs.hpp"
#include "shim/shim.hpp"
#include "verbs/export.hpp"
#include "verbs/next_library.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <type_traits>
#include <utility>

namespace softverbs::shim {
namespace {

queue_record& record_of(const ibv_cq* queue) noexcept { return *all().queues.find(queue); }
queue_record& record_of(const ibv_cq_ex* queue) noexcept { return *all().queues.find(queue); }

template <typename Value>
void read(Value (*function)(ibv_cq_ex*), ibv_cq_ex* from, auto& into) {
  // The function may return more bits than ibv_wc has, such as 32 bits for a LID.
  if (function != nullptr)
    into = static_cast<std::remove_reference_t<decltype(into)>>(function(from));
}

/// Reads the valid fields of the device's current completion. A field for which the device has no
/// function can't be read by the program, either.
completion read_whole(const ibv_cq_ex& theirs, ibv_cq_ex* from) {
  completion result;
  ibv_wc& wc = result.wc;
  wc.wr_id = from->wr_id;
  wc.status = from->status;
  read(theirs.read_qp_num, from, wc.qp_num);
  if (wc.status != IBV_WC_SUCCESS) {
    // If the request has failed, only the fields above and the vendor's error code are defined.
    read(theirs.read_vendor_err, from, wc.vendor_err);
    return result;
  }
  read(theirs.read_opcode, from, wc.opcode);
  read(theirs.read_byte_len, from, wc.byte_len);
  read(theirs.read_imm_data, from, wc.imm_data);
  read(theirs.read_src_qp, from, wc.src_qp);
  read(theirs.read_wc_flags, from, wc.wc_flags);
  read(theirs.read_slid, from, wc.slid);
  read(theirs.read_sl, from, wc.sl);
  read(theirs.read_dlid_path_bits, from, wc.dlid_path_bits);
  read(theirs.read_completion_ts, from, result.timestamp);
  read(theirs.read_completion_wallclock_ns, from, result.wall_clock);
  read(theirs.read_cvlan, from, result.vlan);
  read(theirs.read_flow_tag, from, result.flow_tag);
  if (theirs.read_tm_info != nullptr) theirs.read_tm_info(from, &result.tag);
  return result;
}

/// Takes up to `most` completions from the device. Returns the same values as `take_in`.
int take_all(queue_record& queue, std::size_t most, ibv_poll_cq_attr* one_by_one,
             std::vector<completion>& into) {
  if (one_by_one != nullptr) {
    auto* const from = reinterpret_cast<ibv_cq_ex*>(queue.queue);
    const ibv_cq_ex& theirs = *queue.theirs;
    if (most == 0) return ENOENT;
    if (const int error = theirs.start_poll(from, one_by_one)) return error;
    do into.push_back(read_whole(theirs, from));
    while (into.size() < most && theirs.next_poll(from) == 0);
    theirs.end_poll(from);
    return 0;
  }
  std::array<ibv_wc, 16> some;
  while (into.size() < most) {
    const std::size_t wanted = std::min(some.size(), most - into.size());
    const int got =
        queue.opened->theirs.ops.poll_cq(queue.queue, static_cast<int>(wanted), some.data());
    if (got < 0) return got;
    for (std::size_t at = 0; at < static_cast<std::size_t>(got); ++at)
      into.emplace_back().wc = some[at];
    if (static_cast<std::size_t>(got) < wanted) break;
  }
  return 0;
}

/// Moves the queue pair to ERR, so that the device flushes its remaining requests, as after an
/// error that the device itself detects.
void fail(pair_record& pair) noexcept {
  pair.failed = true;
  attention.fetch_add(1);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // If this call fails, `judge` still reports the remaining completions as flushed.
  static_cast<void>(SOFTVERBS_NEXT(ibv_modify_qp)(pair.pair, &attributes, IBV_QP_STATE));
}

/// True for an XRC receive queue pair: the completions of XRC receives belong to the shared receive
/// queues.
bool has_no_queues(const ibv_qp& pair) noexcept { return pair.qp_type == IBV_QPT_XRC_RECV; }

/// Returns the record of another object for the same queue pair, or null if there is none. An XRC
/// queue pair can have any number of objects.
pair_record* another_of(const pair_record& one) noexcept {
  pair_record* found = nullptr;
  all().pairs.each([&](pair_record& each) {
    if (&each != &one && each.opened == one.opened && each.pair->qp_num == one.pair->qp_num)
      found = &each;
  });
  return found;
}

/// Determines the status of a completion, and the time at which the program may get it.
void judge(queue_record& queue, completion& taken) {
  const auto found = queue.opened->pairs.find(taken.wc.qp_num);
  pair_record* const pair = found == queue.opened->pairs.end() ? nullptr : found->second;
  faults::verdict verdict;
  if (taken.wc.status == IBV_WC_SUCCESS) {
    if (pair != nullptr && pair->failed) {
      taken.wc.status = IBV_WC_WR_FLUSH_ERR;
      taken.wc.vendor_err = 0;
    } else {
      const bool receives = (taken.wc.opcode & IBV_WC_RECV) != 0;
      verdict = all().list.next_request(taken.wc.qp_num, receives, change_state);
    }
  }
  if (verdict.status != IBV_WC_SUCCESS) {
    taken.wc.status = verdict.status;
    taken.wc.vendor_err = verdict.vendor_code;
    if (pair != nullptr) fail(*pair);
  }
  nanoseconds due = now() + verdict.delay;
  if (verdict.delay != 0 && !verdict.overtakable) due = queue.floor = std::max(due, queue.floor);
  due = std::max(due, queue.floor);
  if (pair != nullptr) {
    due = pair->floor = std::max(due, pair->floor);
  } else {
    // A work queue has no record in which to store this time. Its new completion is due no earlier
    // than its other completions that are held back.
    for (const auto& [time, each] : queue.waiting)
      if (each.wc.qp_num == taken.wc.qp_num) due = std::max(due, time);
  }
  queue.waiting.emplace(due, taken);
  attention.fetch_add(1);
}

/// Removes the next completion that the program may get, and copies it to `into`. Returns false if
/// there is none. Requires the lock.
bool hand_out(queue_record& queue, completion& into) {
  if (queue.waiting.empty() || queue.waiting.begin()->first > now()) return false;
  into = queue.waiting.begin()->second;
  queue.waiting.erase(queue.waiting.begin());
  return true;
}

bool show_next(queue_record& queue) {
  const std::lock_guard held(all().lock);
  if (!hand_out(queue, queue.shown)) return false;
  auto* shown = reinterpret_cast<ibv_cq_ex*>(queue.queue);
  shown->wr_id = queue.shown.wc.wr_id;
  shown->status = queue.shown.wc.status;
  return true;
}

void end_showing(queue_record& queue) noexcept {
  queue.shows = false;
  attention.fetch_sub(1);
  queue.reading.end();
}

int start_poll(ibv_cq_ex* from, ibv_poll_cq_attr* attributes) {
  queue_record& queue = record_of(from);
  if (is_idle()) return queue.theirs->start_poll(from, attributes);
  SHIM_FAULT(ibv_start_poll, from->context);
  // No attribute is defined, so every bit is invalid.
  if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
  if (!queue.reading.begin()) return EBUSY;
  // Without attributes, `take_in` would read the completions in the form that lacks most fields.
  ibv_poll_cq_attr nothing{};
  const int error = take_in(queue, attributes == nullptr ? &nothing : attributes);
  if (show_next(queue)) {
    queue.shows = true;
    return 0;
  }
  queue.reading.end();
  return error == 0 ? ENOENT : error;
}

int next_poll(ibv_cq_ex* from) {
  queue_record& queue = record_of(from);
  if (!queue.shows) {
    SHIM_FAULT(ibv_next_poll, from->context);
    return queue.theirs->next_poll(from);
  }
  SHIM_FAULT(ibv_next_poll, from->context);
  if (!show_next(queue)) return ENOENT;
  attention.fetch_sub(1);
  return 0;
}

void end_poll(ibv_cq_ex* from) {
  queue_record& queue = record_of(from);
  if (!queue.shows) return queue.theirs->end_poll(from);
  end_showing(queue);
}

/// Returns a function that reads a field, either of a completion held here or of the device's
/// current one.
template <auto Function, typename Get>
auto reading(Get) {
  return +[](ibv_cq_ex* from) -> decltype((std::declval<ibv_cq_ex&>().*Function)(nullptr)) {
    const queue_record& queue = record_of(from);
    if (queue.shows) return Get{}(queue.shown);
    return ((*queue.theirs).*Function)(from);
  };
}

template <auto Function, typename Get>
void stand_in_front_of(ibv_cq_ex& queue, Get get) {
  if (queue.*Function != nullptr) queue.*Function = reading<Function>(get);
}

void read_tm_info(ibv_cq_ex* from, ibv_wc_tm_info* into) {
  const queue_record& queue = record_of(from);
  if (!queue.shows) return queue.theirs->read_tm_info(from, into);
  *into = queue.shown.tag;
}

}  // namespace

int take_in(queue_record& queue, ibv_poll_cq_attr* one_by_one) {
  std::vector<completion> taken;
  std::size_t most = 0;
  {
    const std::lock_guard held(all().lock);
    const auto room = static_cast<std::size_t>(std::max(queue.queue->cqe, 1));
    most = room - std::min(queue.waiting.size(), room);
  }
  const int error = take_all(queue, most, one_by_one, taken);
  if (taken.empty()) return error;
  const std::lock_guard held(all().lock);
  for (completion& each : taken) judge(queue, each);
  keep_time();
  if (queue.channel != nullptr) set_alarm(*queue.channel);
  return error;
}

void forget_completions(std::uint32_t pair, const context_record& opened) noexcept {
  all().queues.each([&](queue_record& each) {
    if (each.opened != &opened) return;
    attention.fetch_sub(
        std::erase_if(each.waiting, [&](const auto& one) { return one.second.wc.qp_num == pair; }));
  });
}

void stand_in_front(queue_record& queue) noexcept {
  auto& verbs = *reinterpret_cast<ibv_cq_ex*>(queue.queue);
  queue.theirs = verbs;
  verbs.start_poll = start_poll;
  verbs.next_poll = next_poll;
  verbs.end_poll = end_poll;
  if (verbs.read_tm_info != nullptr) verbs.read_tm_info = read_tm_info;
  stand_in_front_of<&ibv_cq_ex::read_opcode>(verbs,
                                             [](const completion& of) { return of.wc.opcode; });
  stand_in_front_of<&ibv_cq_ex::read_vendor_err>(
      verbs, [](const completion& of) { return of.wc.vendor_err; });
  stand_in_front_of<&ibv_cq_ex::read_byte_len>(verbs,
                                               [](const completion& of) { return of.wc.byte_len; });
  stand_in_front_of<&ibv_cq_ex::read_imm_data>(verbs,
                                               [](const completion& of) { return of.wc.imm_data; });
  stand_in_front_of<&ibv_cq_ex::read_qp_num>(verbs,
                                             [](const completion& of) { return of.wc.qp_num; });
  stand_in_front_of<&ibv_cq_ex::read_src_qp>(verbs,
                                             [](const completion& of) { return of.wc.src_qp; });
  stand_in_front_of<&ibv_cq_ex::read_wc_flags>(verbs,
                                               [](const completion& of) { return of.wc.wc_flags; });
  stand_in_front_of<&ibv_cq_ex::read_slid>(
      verbs, [](const completion& of) { return std::uint32_t{of.wc.slid}; });
  stand_in_front_of<&ibv_cq_ex::read_sl>(verbs, [](const completion& of) { return of.wc.sl; });
  stand_in_front_of<&ibv_cq_ex::read_dlid_path_bits>(
      verbs, [](const completion& of) { return of.wc.dlid_path_bits; });
  stand_in_front_of<&ibv_cq_ex::read_completion_ts>(
      verbs, [](const completion& of) { return of.timestamp; });
  stand_in_front_of<&ibv_cq_ex::read_cvlan>(verbs, [](const completion& of) { return of.vlan; });
  stand_in_front_of<&ibv_cq_ex::read_flow_tag>(verbs,
                                               [](const completion& of) { return of.flow_tag; });
  stand_in_front_of<&ibv_cq_ex::read_completion_wallclock_ns>(
      verbs, [](const completion& of) { return of.wall_clock; });
}

int poll_cq(ibv_cq* from, int wanted, ibv_wc* out) {
  if (is_idle()) return all().contexts.find(from->context)->theirs.ops.poll_cq(from, wanted, out);
  SHIM_FAULT(ibv_poll_cq, from->context);
  queue_record& queue = record_of(from);
  const session_guard reading(&queue.reading);
  if (reading.refused()) return -EBUSY;
  const int error = take_in(queue, nullptr);
  const std::lock_guard held(all().lock);
  int got = 0;
  for (completion next; got < wanted && hand_out(queue, next); ++got) {
    out[got] = next.wc;
    attention.fetch_sub(1);
  }
  return got == 0 ? error : got;
}

int req_notify_cq(ibv_cq* from, int solicited_only) {
  if (!is_idle()) {
    SHIM_FAULT(ibv_req_notify_cq, from->context);
    queue_record& queue = record_of(from);
    const std::lock_guard held(all().lock);
    queue.armed = true;
    queue.armed_at = now();
    if (queue.channel != nullptr) set_alarm(*queue.channel);
  }
  return all().contexts.find(from->context)->theirs.ops.req_notify_cq(from, solicited_only);
}

int wr_complete(ibv_qp_ex* pair) {
  const auto* record = all().pairs.find(pair);
  if (!is_idle()) {
    const entry here;
    if (const auto failure =
            here.strike(faults::number_of("ibv_wr_complete"), pair->qp_base.context)) {
      const int error = errno;
      pair->wr_abort(pair);
      errno = error;
      return *failure;
    }
  }
  return record->wr_complete(pair);
}

int attend_to(ibv_cq* queue, channel_record* channel, bool one_by_one) noexcept try {
  auto made = std::make_unique<queue_record>();
  const std::lock_guard held(all().lock);
  made->queue = queue;
  made->opened = all().contexts.find(queue->context);
  if (made->opened == nullptr) return 0;
  made->channel = channel;
  // Room in the table is reserved first, so that nothing throws once the channel has the record.
  all().queues.reserve(1);
  if (channel != nullptr) channel->queues.push_back(made.get());
  all().queues.insert(queue, *made);
  if (one_by_one) stand_in_front(*made);
  static_cast<void>(made.release());
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int attend_to(ibv_qp* pair) noexcept try {
  auto made = std::make_unique<pair_record>();
  ibv_qp_ex* const builder = SOFTVERBS_NEXT(ibv_qp_to_qp_ex)(pair);
  const std::lock_guard held(all().lock);
  made->pair = pair;
  made->opened = all().contexts.find(pair->context);
  if (made->opened == nullptr) return 0;
  // Nothing throws once the table contains the record. If `insert` throws, a new entry of the map
  // stays null.
  pair_record*& by_number = made->opened->pairs[pair->qp_num];
  all().pairs.insert(pair, *made);
  by_number = made.get();
  if (builder != nullptr && builder->wr_complete != nullptr) {
    made->wr_complete = builder->wr_complete;
    builder->wr_complete = wr_complete;
  }
  static_cast<void>(made.release());
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

}  // namespace softverbs::shim

using namespace softverbs;
using namespace softverbs::shim;

SOFTVERBS_EXPORT ibv_cq* ibv_create_cq(ibv_context* verbs, int entries, void* user_context,
                                       ibv_comp_channel* channel, int vector) {
  SHIM_FAULT(ibv_create_cq, verbs);
  ibv_cq* queue = nullptr;
  {
    const own_descriptor shown(verbs);
    queue = SOFTVERBS_NEXT(ibv_create_cq)(verbs, entries, user_context, theirs(channel), vector);
  }
  if (queue == nullptr) return nullptr;
  channel_record* const record = channel == nullptr ? nullptr : all().channels.find(channel);
  if (const int error = attend_to(queue, record, false)) {
    SOFTVERBS_NEXT(ibv_destroy_cq)(queue);
    errno = error;
    return nullptr;
  }
  return queue;
}

SOFTVERBS_EXPORT int ibv_destroy_cq(ibv_cq* queue) {
  SHIM_FAULT(ibv_destroy_cq, queue->context);
  queue_record* const record = all().queues.find(queue);
  if (record == nullptr) return SOFTVERBS_NEXT(ibv_destroy_cq)(queue);
  unsigned raised = 0;
  {
    const std::lock_guard held(all().lock);
    all().queues.erase(queue);
    if (record->channel != nullptr) std::erase(record->channel->queues, record);
    raised = record->events_raised;
  }
  // ibv_destroy_cq waits until the events that the device raised are acknowledged, so
  // acknowledgements of other events must not be counted.
  ::pthread_mutex_lock(&queue->mutex);
  queue->comp_events_completed -= raised;
  ::pthread_mutex_unlock(&queue->mutex);
  const int error = SOFTVERBS_NEXT(ibv_destroy_cq)(queue);
  const std::lock_guard held(all().lock);
  if (error == 0) {
    attention.fetch_sub(record->waiting.size());
    delete record;
    return 0;
  }
  ::pthread_mutex_lock(&queue->mutex);
  queue->comp_events_completed += raised;
  ::pthread_mutex_unlock(&queue->mutex);
  if (record->channel != nullptr) record->channel->queues.push_back(record);
  all().queues.insert(queue, *record);
  return error;
}

SOFTVERBS_EXPORT int ibv_resize_cq(ibv_cq* queue, int entries) {
  SHIM_FAULT(ibv_resize_cq, queue->context);
  return SOFTVERBS_NEXT(ibv_resize_cq)(queue, entries);
}

SOFTVERBS_EXPORT ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  SHIM_FAULT(ibv_create_qp, domain->context);
  return attended(domain->context,
                  [&] { return SOFTVERBS_NEXT(ibv_create_qp)(domain, attributes); });
}

SOFTVERBS_EXPORT int ibv_modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  SHIM_FAULT(ibv_modify_qp, pair->context);
  const int error = SOFTVERBS_NEXT(ibv_modify_qp)(pair, attributes, mask);
  if (error != 0 || (mask & IBV_QP_STATE) == 0 || attributes->qp_state != IBV_QPS_RESET)
    return error;
  const std::lock_guard held(all().lock);
  pair_record* const record = all().pairs.find(pair);
  if (record == nullptr) return 0;
  if (!is_idle() && !has_no_queues(*pair)) forget_completions(pair->qp_num, *record->opened);
  if (std::exchange(record->failed, false)) attention.fetch_sub(1);
  record->floor = 0;
  return 0;
}

SOFTVERBS_EXPORT int ibv_destroy_qp(ibv_qp* pair) {
  SHIM_FAULT(ibv_destroy_qp, pair->context);
  pair_record* const record = all().pairs.find(pair);
  if (record == nullptr) return SOFTVERBS_NEXT(ibv_destroy_qp)(pair);
  const std::uint32_t number = pair->qp_num;
  const bool keeps_completions = has_no_queues(*pair);
  {
    // From here on, faults can't make the queue pair fail, except through another object for it.
    const std::lock_guard held(all().lock);
    all().pairs.erase(pair);
    pair_record* const other = has_no_queues(*pair) ? another_of(*record) : nullptr;
    if (other == nullptr) {
      record->opened->pairs.erase(number);
    } else {
      record->opened->pairs[number] = other;
      if (!other->failed) std::swap(other->failed, record->failed);
      other->floor = std::max(other->floor, record->floor);
    }
  }
  const int error = SOFTVERBS_NEXT(ibv_destroy_qp)(pair);
  const std::lock_guard held(all().lock);
  if (error != 0) {
    record->opened->pairs.try_emplace(number, record);
    all().pairs.insert(pair, *record);
    return error;
  }
  if (!is_idle() && !keeps_completions) forget_completions(number, *record->opened);
  if (record->failed) attention.fetch_sub(1);
  delete record;
  return 0;
}
