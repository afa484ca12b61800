// SPDX-License-Identifier: Apache-2.0
#include "calls/call_messages.hpp"
#include "core/inbox_state.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/calls/caller.hpp>
#include <verbspp/calls/detail/caller_core.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <ostream>
#include <string>

namespace verbspp::detail {

namespace {

constexpr const char* opening = "caller::open";
constexpr const char* starting = "caller::start";

constexpr method_description comparison{.number = comparing_methods,
                                        .version = 0,
                                        .request_size = any_size,
                                        .answer_size = sizeof(largest_sizes),
                                        .name = starting,
                                        .lends = {}};

/// True if `one` is above `other`, for counters that wrap.
bool is_above(std::uint32_t one, std::uint32_t other) noexcept {
  return static_cast<std::int32_t>(one - other) > 0;
}

}  // namespace

caller_core::caller_core(inbox answers, message_pool pool, channel_core& core,
                         const caller_options& options) noexcept
    : core_(core),
      pool_(std::move(pool)),
      answers_(std::move(answers)),
      in_flight_(options.in_flight),
      message_size_(options.message_size),
      largest_request_(largest_comparison),
      slots_(new(std::nothrow) call_slot[options.in_flight]),
      lanes_(new(std::nothrow) calling_lane[options.lanes]),
      lane_count_(options.lanes),
      sent_size_(options.sent_size),
      copied_size_(options.copied_size),
      counters_(new(std::nothrow) method_counters[1]),
      recent_(counters_.get()),
      measures_durations_(options.measures_durations) {
  if (!slots_) return;
  for (std::uint32_t i = 0; i < options.in_flight; ++i) {
    slots_.get()[i].key = call_header::key(0, i);
    slots_.get()[i].next_free = static_cast<std::uint16_t>(i + 1);
  }
}

caller_core::~caller_core() {
  if (begun_ != nullptr) begun_->give_back();
  for (std::uint32_t i = 0; slots_ && i < in_flight_; ++i) {
    const call_slot& slot = slots_.get()[i];
    if (slot.state == slot_state::answered) slot.answer->give_back();
  }
}

result<reference<caller_core>> caller_core::open(prepared_channel& link,
                                                 const caller_options& options) noexcept {
  if (options.in_flight == 0 || options.in_flight > UINT16_MAX)
    return error::out_of_range(opening, "in_flight", options.in_flight, "use 1 to 65535 calls");
  VERBSPP_TRYV(check_message_size(opening, options.message_size));
  if (options.lanes == 0 || options.lanes >= no_lane)
    return error::out_of_range(opening, "lanes", options.lanes, "use 1 to 65534");
  channel_core& core = link.core();
  if (core.state() == channel_state::empty) return channel_core::refusal_of_empty(opening);
  if (core.connection().type() != transport::rc)
    return error(error_kind::not_supported, opening,
                 "calls need a reliable transport: build the channel with transport::rc");
  if (core.has_shared_messages())
    return error(error_kind::not_supported, opening,
                 "this channel receives into the pool of a hub, where other channels could use up "
                 "the receives for its answers: use a channel with its own receives");
  // Checks the capacities of the channel, which may be lower than those of the queue pair if the
  // channel belongs to a hub.
  if (core.sends().capacity() < options.in_flight)
    return error::above_limit(opening, "in_flight", options.in_flight, core.sends().capacity(),
                              "build the channel with a larger max_send_work_requests");
  const std::uint32_t depth = options.in_flight * 2;
  if (core.receives().capacity() < depth)
    return error::above_limit(opening, "receives (2 for each call in flight)", depth,
                              core.receives().capacity(),
                              "build the channel with a larger max_receive_work_requests");
  // Each call in flight needs two places: when the answer has arrived, and the next call is sent,
  // the place of the previous request may still be in use.
  const std::uint32_t unkept = depth + 2 * options.in_flight;
  if (options.kept_answers > pool_places::most - unkept)
    return error::above_limit(opening, "kept_answers", options.kept_answers,
                              pool_places::most - unkept,
                              "a message pool has at most 2^28 places: keep fewer answers");
  VERBSPP_TRY(pool, message_pool::create(
                        core.connection().domain(), unkept + std::max(options.kept_answers, 1U),
                        options.message_size + static_cast<std::uint32_t>(call_header::size)));
  VERBSPP_TRY(
      answers,
      inbox::open(link, pool, {.depth = depth, .refill = std::max(options.in_flight / 2, 1U)}));
  reference<caller_core> made(new (std::nothrow)
                                  caller_core(std::move(answers), std::move(pool), core, options));
  if (!made || !made->slots_ || !made->lanes_ || !made->counters_)
    return error::from_errno(ENOMEM, opening);
  return made;
}

wait_limit caller_core::begin_limit(call_limit limit) const noexcept {
  return limit.begin(core_.connection().settings().default_limit);
}

result<void> caller_core::start(channel&& link, std::span<const method_description* const> of,
                                call_limit limit) noexcept {
  if (&link.core() != &core_)
    return error(error_kind::invalid_input, starting,
                 "this is not the channel for which the caller was opened: pass that one");
  VERBSPP_TRYV(make_counters(of));
  link_ = std::move(link);
  credits_ = sent_ + 1;
  return compare(of, begin_limit(limit));
}

void caller_core::close() noexcept {
  fail({error_kind::not_connected, "caller",
        "the caller was destroyed, or replaced by an assignment"});
  link_ = channel();
  for (std::uint32_t i = 0; i < lane_count_; ++i) {
    calling_lane& lane = lanes_.get()[i];
    lane.is_accessible = !lane.close();
    lane.former = channel();
  }
}

/// Sends the descriptions of the methods, as many as fit in each message. The service refuses a
/// message that contains a method which differs from its own.
result<void> caller_core::compare(std::span<const method_description* const> methods,
                                  const wait_limit& until) noexcept {
  std::size_t next = 0;
  do {
    VERBSPP_TRY(request, begin_waiting(comparison, nullptr, until));
    method_list_writer list(request, message_size_);
    while (next < methods.size() && list.add(*methods[next])) ++next;
    VERBSPP_TRY(slot, send(comparison, list.size()));
    VERBSPP_TRY(answer, wait(slot, comparison, until));
    const std::byte* const of_service = body_of(std::as_const(answer)).data();
    const auto largest = get_from_frame<std::uint32_t>(of_service);
    if (largest < largest_comparison)
      return error(
          error_kind::mismatch, starting,
          "the service accepts only requests of less than 128 bytes, which the protocol does not "
          "permit: check that it is a verbspp service of the same version");
    largest_request_ = std::min(message_size_, largest);
    sent_size_ =
        std::min(sent_size_, get_from_frame<std::uint32_t>(of_service + sizeof(std::uint32_t)));
  } while (next < methods.size());
  const bool lends =
      std::ranges::any_of(methods, [](const auto* each) { return !each->lends.empty(); });
  if (lends) return check_lane_request(starting);
  return success();
}

result<void> caller_core::check_lane_request(const char* operation) const noexcept {
  if (largest_request_ >= lane_request_size) return success();
  return error::out_of_range(operation, "message_size", largest_request_,
                             "use at least 376 bytes at both ends, since a method lends memory");
}

result<void> caller_core::make_counters(
    std::span<const method_description* const> methods) noexcept {
  const auto count = static_cast<std::uint32_t>(methods.size());
  owned<method_counters[]> counters(new (std::nothrow) method_counters[count + 1]);
  owned<duration_histogram[]> durations;
  if (measures_durations_)
    durations = owned<duration_histogram[]>(new (std::nothrow) duration_histogram[count + 1]);
  if (!counters || (measures_durations_ && !durations)) return error::from_errno(ENOMEM, starting);
  counters_ = std::move(counters);
  durations_ = std::move(durations);
  recent_ = counters_.get();
  method_count_ = 0;
  for (const method_description* each : methods)
    counters_.get()[method_count_++].number = each->number;
  // If the caller was started before, calls may be in flight. They need the new counters.
  for (std::uint32_t i = 0; i < in_flight_; ++i)
    slots_.get()[i].counters = &counters_of(slots_.get()[i].method());
  return success();
}

VERBSPP_DATA_PATH bool caller_core::has_credit() const noexcept {
  // Each answer that may arrive needs a receive.
  return is_above(credits_, sent_) && first_free_ != in_flight_ &&
         sent_ - answered_ < answers_.state_->posted();
}

bool caller_core::may_begin() noexcept {
  return failure_.has_value() || link_.state() != channel_state::connected ||
         (has_credit() && !lacks_places());
}

error caller_core::has_no_credit(const char* method) noexcept {
  return {
      error_kind::would_block, method,
      "there is no room for another call, because as many are in flight as both ends allow (one "
      "that ended early counts until its answer arrives), because calls made with async_call wait "
      "ahead of it, or because kept answers use up the memory: take and drop answers, or try again "
      "later"};
}

std::span<std::byte> caller_core::begin_at_once() noexcept {
  if (!has_credit() || failure_) [[unlikely]]
    return {};
  if (begun_ == nullptr) [[likely]]
    begun_ = pool_.places()->take();
  if (begun_ == nullptr) [[unlikely]]
    return {};
  return space();
}

result<std::span<std::byte>> caller_core::begin(const method_description& of) noexcept {
  if (!has_credit() || failure_) [[unlikely]] {
    poll();
    if (failure_) return *failure_;
    if (link_.state() == channel_state::empty)
      return error(error_kind::not_connected, of.name, "call caller::start first");
    if (!link_.is_connected()) return core_.connection().refusal(of.name);
    if (!has_credit()) return has_no_credit(of.name);
  }
  if (begun_ == nullptr) begun_ = pool_.places()->take();
  if (begun_ != nullptr) return space();
  poll();  // may release the places of earlier requests, so that the next call succeeds
  return has_no_credit(of.name);
}

result<std::span<std::byte>> caller_core::begin_waiting(const method_description& of,
                                                        const loan* lent,
                                                        const wait_limit& until) noexcept {
  bool has_waited = false;
  for (;;) {
    const auto begun = lent == nullptr ? begin(of) : begin_lending(of, *lent);
    if (begun.has_value() || begun.assume_error() != error_kind::would_block) [[likely]]
      return begun;
    if (!has_waited) add(counters_of(of.number).counted.waits, 1);
    has_waited = true;
    VERBSPP_TRY(end, link_.wait(until));
    if (end == wait_end::limit || until.has_passed())
      return until.failure(
          of.name,
          "the call was not sent, because there was no room for it, or no lane (a connection for "
          "lent memory): take and drop answers of earlier calls, or allow more time");
  }
}

result<void> caller_core::request_lane(calling_lane& lane) noexcept {
  // Before `start`, `begin` fails, and the size of the largest request is not known yet.
  VERBSPP_TRY(request, begin(opening_lane));
  VERBSPP_TRYV(check_lane_request(opening_lane.name));
  VERBSPP_TRY(prepared,
              prepare_lane(core_, core_.connection().settings().waiting,
                           access::local_write | access::remote_read | access::remote_write));
  const auto own = prepared.endpoint().encode();
  const auto number = static_cast<std::uint16_t>(&lane - lanes_.get());
  std::byte* const body = request.data();
  std::memset(body, 0, lane_request_size);
  put_in_frame(body, number);
  std::memcpy(body + lane_request_size - own.size(), own.data(), own.size());
  VERBSPP_TRY(slot,
              send_frame(opening_lane, lane_request_size, call_frame_kind::lane_request, no_lane));
  lane.link = channel(std::move(prepared));
  lane.slot = slot;
  lane.at = calling_lane::stage::requested;
  return success();
}

VERBSPP_DATA_PATH result<caller_core::slot_index> caller_core::send_frame(
    const method_description& of, std::size_t size, call_frame_kind kind,
    std::uint16_t lane) noexcept {
  const auto index = static_cast<slot_index>(first_free_);
  call_slot& slot = slots_.get()[index];
  pool_place& place = *begun_;
  const ibv_sge frame = place.element(static_cast<std::uint32_t>(call_header::size + size));
  const call_header header{.kind = kind,
                           .flags = {},
                           .method = of.number,
                           .number = slot.number(),
                           .length = static_cast<std::uint32_t>(size),
                           .credits = 0};
  header.encode(place.bytes());
  if (recent_->number != of.number) [[unlikely]]
    recent_ = &counters_of(of.number);
  method_counters& counters = *recent_;
  slot.counters = &counters;
  slot.key = call_header::key(of.number, header.number);
  slot.lane = lane;
  const result<void> posted = post_frame(core_, {.keeper = &place}, frame);
  if (posted.has_error()) [[unlikely]]
    return posted.assume_error();
  begun_ = nullptr;
  first_free_ = slot.next_free;
  slot.state = slot_state::waiting;
  ++sent_;
  add(counters.counted.calls, 1);
  add(counters.counted.request_bytes, size);
  if (measures_durations_) [[unlikely]]
    slot.begun = std::chrono::steady_clock::now();
  return index;
}

result<caller_core::slot_index> caller_core::send(const method_description& of,
                                                  std::size_t size) noexcept {
  if (size > largest_request_) [[unlikely]]
    return error::above_limit(of.name, "size of the encoded request in bytes", size,
                              largest_request_);
  if (begun_ == nullptr) [[unlikely]]
    return codec_has_called(of.name);
  return send_frame(of, size, call_frame_kind::call, no_lane);
}

result<caller_core::slot_index> caller_core::send_lending(const method_description& of,
                                                          const loan& lent,
                                                          std::size_t size) noexcept {
  take_begun_loan();
  const std::uint16_t lane = lane_in(space());
  const auto index = static_cast<slot_index>(first_free_);
  const auto send = [&]() noexcept -> result<slot_index> {
    if (size > largest_request_) {
      const std::size_t offset = request_offset(space(), of, lent);
      return error::above_limit(of.name, "size of the encoded request in bytes", size - offset,
                                largest_request_ - offset);
    }
    if (!has_credit()) return codec_has_called(of.name);
    return send_frame(of, size, call_frame_kind::lending_call, lane);
  };
  const result<slot_index> sent = send();
  if (sent.has_error()) {
    VERBSPP_TRYV(abandon_loan());
    return sent;
  }
  caller_statistics& counters = slots_.get()[index].counters->counted;
  add(counters.lent_bytes, lent.what.length);
  if (lane == sent_lane) {
    add(counters.sent_bytes, lent.what.length);
    if (of.lends.contains(access::remote_write))
      sent_loans_.get()[index] = {{lent.what.memory, lent.what.length}, lent.kept()};
  } else if (lane != no_lane && lanes_.get()[lane].uses_copy) {
    add(counters.copied_bytes, lent.what.length);
  }
  return sent;
}

template <class Next>
VERBSPP_DATA_PATH void caller_core::take_each(Next next) noexcept {
  inbox_state& answers = *answers_.state_.get();
  while (pool_place* taken = next(answers)) {
    do {
      take(message(taken, taken->message_size()));
    } while ((taken = answers.take_listed()) != nullptr);
  }
  // Posts receives for the next answers, if a batch is due.
  if (const auto refused = answers_.next_arrived()) fail(refused->assume_error());
}

void caller_core::poll() noexcept {
  take_each([](inbox_state& answers) { return answers.take(); });
}

void caller_core::take_arrived() noexcept {
  take_each([](inbox_state& answers) { return answers.take_arrived(); });
}

VERBSPP_DATA_PATH void caller_core::count_answer(std::uint32_t credits) noexcept {
  ++answered_;
  if (is_above(credits, credits_)) credits_ = credits;
}

void caller_core::refuse_peer() noexcept {
  // This function does not call `close`, because `close` resumes coroutines, and this function may
  // be called while a poll tests which coroutines to resume.
  link_.stop();
  fail({error_kind::mismatch, "caller",
        "the peer has sent a message that is not an answer to a call: it runs no service on this "
        "channel, or uses another version of verbspp"});
}

VERBSPP_DATA_PATH void caller_core::take(message&& arrived) noexcept {
  const std::span<const std::byte> bytes = std::as_const(arrived).bytes();
  const std::byte* const header = bytes.data();
  if (!call_header::is_framed(bytes)) [[unlikely]]
    return refuse_peer();
  const std::uint32_t index = call_header::number_in(header) & UINT16_MAX;
  if (index >= in_flight_) [[unlikely]]
    return refuse_peer();
  call_slot& slot = slots_.get()[index];
  if (!call_header::has_key(header, slot.key) || slot.state != slot_state::waiting) [[unlikely]]
    return take_late(bytes);
  count_answer(call_header::credits_in(header));
  slot.state = slot_state::answered;
  slot.first = header[0];
  slot.size = arrived.size();
  slot.answer = static_cast<pool_place*>(std::move(arrived).give().keeper);
}

void caller_core::take_late(std::span<const std::byte> bytes) noexcept {
  if (!call_header::is_from_service(bytes)) return refuse_peer();
  const std::byte* const header = bytes.data();
  add(counters_of(call_header::method_in(header)).counted.late_answers, 1);
  call_slot& slot = slots_.get()[call_header::number_in(header) & UINT16_MAX];
  // An answer that belongs to no call has consumed a receive, but its credits do not count.
  if (!call_header::has_key(header, slot.key) || slot.state != slot_state::given_up) return;
  count_answer(call_header::credits_in(header));
  free(slot);
}

VERBSPP_DATA_PATH void caller_core::free(call_slot& slot) noexcept {
  slot.state = slot_state::free;
  slot.key += call_header::key_distance(UINT16_MAX + 1U);
  slot.next_free = static_cast<std::uint16_t>(first_free_);
  first_free_ = slot.number() & UINT16_MAX;
}

VERBSPP_DATA_PATH message caller_core::take_answer(call_slot& slot) noexcept {
  free(slot);
  return {slot.answer, slot.size};
}

void caller_core::fail(const error& why) noexcept {
  if (!failure_) failure_ = why;
}

VERBSPP_DATA_PATH bool caller_core::is_plain(const call_slot& slot,
                                             const method_description& of) const noexcept {
  constexpr call_progress plain{.state = slot_state::answered,
                                .first = static_cast<std::byte>(call_frame_kind::answer)};
  return slot.equals(plain) && !measures_durations_ &&
         (of.answer_size == any_size || of.answer_size == slot.size - call_header::size);
}

VERBSPP_DATA_PATH result<message> caller_core::finish_plainly(call_slot& slot) noexcept {
  caller_statistics& counters = slot.counters->counted;
  add(counters.answers, 1);
  add(counters.answer_bytes, slot.size - call_header::size);
  return take_answer(slot);
}

result<message> caller_core::finish(slot_index index, const method_description& of) noexcept {
  call_slot& slot = slots_.get()[index];
  if (is_plain(slot, of)) [[likely]]
    return finish_plainly(slot);
  return finish_with_care(index, of);
}

result<message> caller_core::finish_with_care(slot_index index,
                                              const method_description& of) noexcept {
  call_slot& slot = slots_.get()[index];
  if (slot.state != slot_state::answered) {
    if (!give_up(index)) return still_accessible(of.name);
    return failure_ ? *failure_
                    : error(error_kind::not_connected, of.name, "the connection was closed");
  }
  method_counters& counters = *slot.counters;
  if (measures_durations_) [[unlikely]] {
    const auto range = duration_histogram::range_of(std::chrono::steady_clock::now() - slot.begun);
    add(durations_.get()[&counters - counters_.get()].counter(range), 1);
  }
  const std::byte first = slot.first;
  const auto kind = static_cast<call_frame_kind>(first & ~call_header::all_flags);
  const std::uint16_t lane = slot.lane;
  message answer = take_answer(slot);
  if (lane != no_lane) [[unlikely]]
    VERBSPP_TRYV(lane == sent_lane ? take_sent(index, answer, counters.counted)
                                   : end_loan(lanes_.get()[lane],
                                              (first & call_header::lane_failed) != std::byte{0}));
  if (kind == call_frame_kind::refusal) {
    add(counters.counted.refusals, 1);
    return read_refusal(body_of(std::as_const(answer)), of.name);
  }
  const std::size_t size = answer.size() - call_header::size;
  if (of.answer_size != any_size && of.answer_size != size)
    return error::mismatch(of.name, "size of the answer in bytes",
                           static_cast<std::int64_t>(of.answer_size),
                           static_cast<std::int64_t>(size));
  add(counters.counted.answers, 1);
  add(counters.counted.answer_bytes, size);
  return answer;
}

result<message> caller_core::wait(slot_index index, const method_description& of,
                                  call_limit limit) noexcept {
  call_slot& slot = slots_.get()[index];
  if (is_plain(slot, of)) [[likely]]
    return finish_plainly(slot);
  return wait_longer(index, of, limit);
}

result<message> caller_core::wait_longer(slot_index index, const method_description& of,
                                         call_limit limit) noexcept {
  if (!is_done(index)) poll();
  if (is_done(index)) return finish(index, of);
  const wait_limit until = begin_limit(limit);
  while (!is_done(index)) {
    result<message> next = answers_.wait(until);
    if (next.has_value()) [[likely]] {
      take(std::move(next).assume_value());
      continue;
    }
    if (link_.is_connected() && until.has_passed()) {
      if (!give_up(index)) return still_accessible(of.name);
      return until.failure(of.name, "no answer has arrived");
    }
    fail(next.assume_error());
  }
  return finish(index, of);
}

error caller_core::still_accessible(const char* method) noexcept {
  return {error_kind::driver, method,
          "the call has ended without an answer, and the device did not revoke the access of the "
          "service: do not free the lent memory"};
}

bool caller_core::give_up(slot_index index) noexcept {
  call_slot& slot = slots_.get()[index];
  add(slot.counters->counted.given_up, 1);
  // The service may still access memory that was lent over a lane. Retiring the lane ends this
  // access.
  const bool has_ended = end_access(std::exchange(slot.lane, no_lane), index);
  if (slot.state == slot_state::answered) {
    static_cast<void>(take_answer(slot));
  } else {
    slot.state = slot_state::given_up;
  }
  return has_ended;
}

namespace {

/// Adds the counters `counted`, which another thread may change, to `sum`.
void add_to(caller_statistics& sum, const caller_statistics& counted) noexcept {
  const auto add = [](std::uint64_t& into, const std::uint64_t& counter) {
    into += __atomic_load_n(&counter, __ATOMIC_RELAXED);
  };
  add(sum.calls, counted.calls);
  add(sum.answers, counted.answers);
  add(sum.refusals, counted.refusals);
  add(sum.given_up, counted.given_up);
  add(sum.late_answers, counted.late_answers);
  add(sum.waits, counted.waits);
  add(sum.request_bytes, counted.request_bytes);
  add(sum.answer_bytes, counted.answer_bytes);
  add(sum.lent_bytes, counted.lent_bytes);
  add(sum.sent_bytes, counted.sent_bytes);
  add(sum.copied_bytes, counted.copied_bytes);
  add(sum.lanes, counted.lanes);
}

}  // namespace

caller_statistics caller_core::statistics() const noexcept {
  caller_statistics sum;
  for (std::uint32_t i = 0; i <= method_count_; ++i) add_to(sum, counters_.get()[i].counted);
  return sum;
}

caller_statistics caller_core::statistics(std::uint16_t method) const noexcept {
  caller_statistics sum;
  add_to(sum, counters_of(method).counted);
  return sum;
}

duration_histogram caller_core::durations(std::uint16_t method) const noexcept {
  duration_histogram sum;
  if (!durations_) return sum;
  duration_histogram& measured = durations_.get()[&counters_of(method) - counters_.get()];
  for (std::size_t i = 0; i < duration_histogram::ranges; ++i)
    sum.counter(i) = __atomic_load_n(&measured.counter(i), __ATOMIC_RELAXED);
  return sum;
}

}  // namespace verbspp::detail

namespace verbspp {

std::ostream& operator<<(std::ostream& out, const caller& printed) {
  if (!printed.core_) return out << "caller that was moved from";
  const caller_statistics counted = printed.statistics();
  return out << "caller, calls: " << std::to_string(counted.calls)
             << ", answers: " << std::to_string(counted.answers)
             << ", lent: " << std::to_string(counted.lent_bytes)
             << (counted.lent_bytes == 1 ? " byte" : " bytes")
             << " (sent: " << std::to_string(counted.sent_bytes)
             << ", copied: " << std::to_string(counted.copied_bytes) << "), "
             << printed.core_.get()->link();
}

}  // namespace verbspp
