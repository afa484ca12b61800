// SPDX-License-Identifier: Apache-2.0
#include "device/async_events.hpp"
#include "qp/addressing.hpp"
#include "queue/watched_descriptors.hpp"
#include "wait/loop_events.hpp"
#include "wait/waiting.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <new>
#include <optional>
#include <utility>

namespace verbspp::detail {

/// The events of a channel for an event loop of the program. A class of its own, because a member
/// of an exported class cannot point to a class that was declared as hidden before.
class [[gnu::visibility("hidden")]] channel_loop : public loop_events {
  using loop_events::loop_events;
};

namespace {

// Explanations of why a request was flushed, for use if the root error does not explain it.
constexpr const char* broken_off =
    "channel::stop moved the queue pair to the error state, or the device did, usually because the "
    "peer requested an operation that this end does not allow";
constexpr const char* too_late =
    "a wait on the channel timed out, so the library closed the connection";
constexpr const char* stopped =
    "a stop was requested during a wait on the channel, so the library closed the connection";
constexpr const char* call_failed =
    "a call on the channel failed, so the library closed the connection: channel::failure returns "
    "the error of that call";

}  // namespace

channel_connection::channel_connection(channel_settings settings) noexcept
    : settings_(std::move(settings)),
      // Zero would mean that there is no owner.
      owner_(std::max(random_number(), 1U)) {}

channel_connection::~channel_connection() {
  listener_.stop();
  delete loop_;
  if (wait_signal_ != -1) ::close(wait_signal_);
}

/// Creates a completion queue with room for all requests that can be outstanding at the same time,
/// so that the queue cannot overrun.
result<void> channel_connection::make_queue() noexcept {
  if (native_queue_ != nullptr && !queue_is_lost_) return success();
  queue_pair_settings& asked = settings_.queue_pair;
  const std::size_t capacity = std::size_t{asked.max_send_work_requests.value()} +
                               (asked.receives ? 0 : asked.max_receive_work_requests.value());
  const context& device = asked.domain->context();
  const std::size_t wanted = std::max<std::size_t>(capacity, 1);
  VERBSPP_TRY(queue,
              settings_.waiting.sleeps()
                  ? result<completion_queue>(waitable_completion_queue::create(device, wanted))
                  : completion_queue::create(device, wanted));
  native_queue_ = queue.native_handle();
  asked.send_queue = queue;
  asked.receive_queue = queue;
  if (loop_ != nullptr) loop_->forget_queue();
  queue_is_lost_ = false;
  return success();
}

void channel_connection::use_queues(const completion_queue& queue,
                                    const std::optional<shared_receive_queue>& receives) noexcept {
  queue_pair_settings& asked = settings_.queue_pair;
  asked.send_queue = queue;
  asked.receive_queue = queue;
  asked.receives = receives;
  native_queue_ = queue.native_handle();
}

result<void> channel_connection::make_queue_pair() noexcept {
  VERBSPP_TRY(made, create_prepared(settings_.type, settings_.queue_pair));
  queue_pair_.emplace(std::move(made));
  native_ = queue_pair_->owner.native();
  extended_ = queue_pair_->owner.native_extended();
  capacities_ = queue_pair_->capacities;
  ++generation_;
  note_endpoint();
  return success();
}

void channel_connection::begin() noexcept {
  failure_.reset();
  root_is_certain_ = false;
  stopped_at_.reset();
  peer_number_ = 0;
  state_ = channel_state::prepared;
  listener_.listen(domain().context(),
                   {.queue_pair = native_, .completion_queue = native_queue_, .port = port()});
}

void channel_connection::note_endpoint() noexcept {
  local_ = queue_pair_->local;
  local_.owner = owner_;
  local_.generation = generation_;
}

result<void> channel_connection::check_prepared() const noexcept {
  constexpr const char* handshake = "handshake of a channel";
  if (state_ == channel_state::prepared) return success();
  if (state_ == channel_state::empty) return channel_core::refusal_of_empty(handshake);
  return error(state_ == channel_state::connected ? error_kind::busy : error_kind::not_connected,
               handshake,
               state_ == channel_state::connected
                   ? "the channel is already connected: renew it before another handshake"
                   : "the channel is broken or closed: renew it, or build another one, and, unless "
                     "a connection manager connects it, give the peer the new endpoint");
}

result<void> channel_connection::check_newer(const endpoint& remote) const noexcept {
  if (!last_peer_) return success();
  return verbspp::check_newer(remote, *last_peer_);
}

result<void> channel_connection::connect(const endpoint& remote) noexcept {
  VERBSPP_TRYV(detail::connect(*queue_pair_, remote));
  note_endpoint();
  state_ = channel_state::connected;
  last_peer_ = remote;
  peer_owner_ = remote.owner;
  peer_number_ = remote.number.value();
  peer_address_ = remote.address;
  return success();
}

result<void> channel_connection::connect(const managed_attributes& by) noexcept {
  VERBSPP_TRYV(detail::connect(*queue_pair_, by));
  note_endpoint();
  state_ = channel_state::connected;
  last_peer_.reset();
  peer_owner_ = 0;
  const ibv_qp_attr& by_manager = by.ready_to_receive.attributes;
  peer_number_ = by_manager.dest_qp_num;
  peer_address_ = gid::from_native(by_manager.ah_attr.grh.dgid);
  return success();
}

void channel_connection::stop() noexcept {
  if (native_ == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // A failure of this call can be ignored, because the queue pair is destroyed later.
  static_cast<void>(ibv_modify_qp(native_, &attributes, IBV_QP_STATE));
  if (!stopped_at_) stopped_at_ = std::chrono::steady_clock::now();
}

int channel_connection::destroy_queue_pair() noexcept {
  listener_.stop();
  const context device = queue_pair_->owner.domain().context();
  const std::uint32_t number = native_->qp_num;
  destroy_errnum_ = errno_of(ibv_destroy_qp(native_));
  if (destroy_errnum_ != 0) return destroy_errnum_;
  forget_async_events(device, async_event_element::queue_pair, number);
  trace("ibv_destroy_qp", queue_pair_->owner.release());
  drop_queue_pair();
  return 0;
}

void channel_connection::drop_queue_pair() noexcept {
  queue_pair_.reset();
  native_ = nullptr;
  extended_ = nullptr;
}

void channel_connection::fail(const error& root, bool is_certain,
                              std::optional<wait_end> by) noexcept {
  if (!failure_) {
    failure_.emplace(root, peer_number_ != 0 ? peer_address_ : gid{});
    state_ = channel_state::broken;
  } else if (is_certain && !root_is_certain_) {
    failure_->replace_root(root);
  } else {
    return;
  }
  root_is_certain_ = is_certain;
  if (by) failure_->note_end(*by);
}

work_error channel_connection::failed(std::uint32_t status, std::uint32_t vendor_code,
                                      std::uint64_t wr_id,
                                      work_operation operation) const noexcept {
  return work_error(static_cast<work_status>(status), vendor_code, wr_id, local_.number.value())
      .with_operation(operation);
}

work_error channel_connection::explained(const work_error& unnamed) noexcept {
  const work_error failure = unnamed.with_peer(queue_pair_number_of(peer_number_));
  if (failure.status() != work_status::flushed || !failure_) return failure;
  if (!root_is_certain_ && queue_pair_)
    if (const auto told = failure_told_to(listener_)) fail(*told, true, wait_end::async_event);
  const error& root = failure_->root();
  const auto failed = work_error::from(root);
  if (failed && failed->status() == work_status::flushed) return failure.with_cause(broken_off);
  if (root.hint() != nullptr) return failure.with_cause(root.hint());
  // An error with an errno comes from a failed call, but may have the same kind as the error of a
  // wait that ended early.
  if (root.native_errno() != 0) return failure.with_cause(call_failed);
  if (root == error_kind::cancelled) return failure.with_cause(stopped);
  return failure.with_cause(root == error_kind::timed_out ? too_late : call_failed);
}

std::optional<error> channel_connection::reason_of_flush() noexcept {
  if (!failure_ || root_is_certain_ || !queue_pair_) return std::nullopt;
  return failure_told_to(listener_, time_of_events);
}

bool channel_connection::lose_queue(int returned) noexcept {
  if (std::exchange(queue_is_lost_, true)) return false;
  const auto told =
      queue_pair_ ? failure_told_to(listener_, time_of_events) : std::optional<error>();
  if (told)
    fail(*told, true, wait_end::async_event);
  else
    fail(poll_failure(returned), true);
  return true;
}

result<wait_end> channel_connection::wait(const looking& look, const wait_limit& until,
                                          const watched_descriptor& another, int signal) noexcept {
  return wait_looking(
      settings_.waiting, queue(),
      {.descriptor = watched_, .another = another, .signal = signal, .listener = &listener_}, until,
      look);
}

result<int> channel_connection::ready_signal() noexcept {
  if (!settings_.waiting.sleeps()) return -1;
  if (wait_signal_ == -1) {
    const int made = make_event_descriptor();
    if (made == -1) return error::from_errno(errno, waiting_on_channel);
    __atomic_store_n(&wait_signal_, made, __ATOMIC_SEQ_CST);
  }
  lower(wait_signal_);
  return wait_signal_;
}

error channel_connection::heard() noexcept {
  // If no failure is found, a port was down, but has recovered in the meantime.
  return failure_told_to(listener_).value_or(
      error(error_kind::driver, waiting_on_channel,
            "the device reported that its port was down, but the port is active again: renew the "
            "channel"));
}

void channel_connection::watch(const watched_descriptor& watched) noexcept {
  if (std::exchange(loop_has_watched_, false)) loop_->remove(watched_.number);
  watched_ends_at_ = (std::chrono::steady_clock::time_point::max)();
  watched_ = watched;
}

result<void> channel_connection::open_loop() noexcept {
  if (settings_.hub)
    return error(error_kind::not_supported, waiting_on_channel,
                 "a channel of a hub has no descriptor: let the event loop wait for the hub");
  if (!settings_.waiting.sleeps())
    return error(error_kind::not_supported, waiting_on_channel,
                 "this channel only spins, and has no descriptor: build it with "
                 "waiting(wait_mode::sleep())");
  if (loop_ == nullptr) loop_ = new (std::nothrow) channel_loop(waiting_on_channel);
  if (loop_ == nullptr) return error::from_errno(ENOMEM, waiting_on_channel);
  VERBSPP_TRYV(loop_->open(queue(), listener_));
  __atomic_store_n(&loop_signal_, loop_->signal(), __ATOMIC_SEQ_CST);
  if (watched_.number >= 0 && !loop_has_watched_) {
    VERBSPP_TRYV(loop_->add_own(watched_.number, events_of(watched_)));
    loop_has_watched_ = true;
  }
  return success();
}

int channel_connection::loop_descriptor() noexcept {
  return open_loop().has_value() ? loop_->descriptor() : -1;
}

result<void> channel_connection::ask_to_be_woken() noexcept {
  VERBSPP_TRYV(open_loop());
  take_loop_events();
  VERBSPP_TRYV(
      completion_queue_access::state_of(queue())->ask_to_be_woken(notify_for::every_completion));
  return success();
}

void channel_connection::wake() const noexcept {
  // If a descriptor does not exist, no thread sleeps on it: the program only polls, or it will
  // check `has_news` or `deadline` before it sleeps.
  for (const int* const each : {&loop_signal_, &wait_signal_})
    if (const int signal = __atomic_load_n(each, __ATOMIC_SEQ_CST); signal >= 0) raise(signal);
}

void channel_connection::take_loop_events() noexcept {
  const result<bool> has_ended = loop_->take(queue());
  // An error can be ignored here: it means that the device no longer exists, which an asynchronous
  // event reports as well.
  if (!has_ended.has_value() || !has_ended.assume_value()) return;
  watched_ends_at_ = std::chrono::steady_clock::now();
  if (watched_.what == watch_for::hang_up) watched_ends_at_ += time_of_completions;
}

std::optional<wait_end> channel_connection::seen_end() const noexcept {
  if (listener_.has_heard()) return wait_end::async_event;
  if (wait_limit(watched_ends_at_).has_passed()) return wait_end::file_descriptor;
  return std::nullopt;
}

}  // namespace verbspp::detail
