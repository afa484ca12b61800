// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/hub/detail/hub_reference.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/pool/channel_id.hpp>
#include <verbspp/pool/message.hpp>
#include <verbspp/pool/message_pool.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/wait/call_limit.hpp>
#include <verbspp/wait/waiting.hpp>
#include <verbspp/work/transport.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <utility>

namespace verbspp {

/// The size and the wait mode of a hub.
struct hub_options {
  /// The maximum number of channels at a time: 1 to 65,535.
  std::uint32_t channels = 64;
  /// The capacity of the hub's completion queue. Each channel reserves as many places as its queues
  /// can hold requests, and the hub reserves one place for each of its `receives`.
  std::uint32_t completions = 4096;
  /// With a pool: the maximum number of receives that the hub keeps posted.
  std::uint32_t receives = 256;
  /// With a pool: the number of receives that are posted together, with one doorbell. Limited to
  /// the range from 1 to 64, and to half of `receives`.
  std::uint32_t refill = 16;
  /// The wait mode of the hub. If the hub only spins, its channels can't sleep.
  wait_mode waiting = wait_mode::spin();
};

/// A message or a notification for one channel of a hub.
struct arrival {
  /// The id of the channel. Compare it with the `id()` of the channel that the program has stored
  /// at this index: the hub reuses indexes.
  channel_id source{};
  /// The message that the channel received. Empty for a notification: in that case, call the
  /// channel's `poll`. It processes completions, which may return the places of sent messages to
  /// the pool, or show that the channel is broken.
  verbspp::message message{};
};

/// The queues that many channels share: one completion queue and, with a pool, one shared receive
/// queue.
///
///     VERBSPP_TRY(hub, channel_hub::create(domain, pool));
///     VERBSPP_TRY(prepared, domain.build_channel().hub(hub).build());
///     ...
///     std::array<arrival, 16> slots;
///     VERBSPP_TRY(arrived, hub.wait(slots, 100ms));
///     for (arrival& each : arrived) ...
///
/// Several threads may wait for the hub at the same time; each message is returned to one of them.
/// A channel may still be used by only one thread at a time: threads that share a channel need a
/// lock for it, such as a mutex stored with it. Channels of one hub can be used by different
/// threads, which wait for their own requests as usual. A thread that polls passes each completion
/// to the channel that it belongs to.
///
/// The messages of one channel are returned in order. If several threads take them, it is up to
/// those threads in which order they process the messages. When a channel is closed, renewed or
/// destroyed, the hub drops the channel's messages that it has not returned yet; if the channel has
/// an inbox, they go to the inbox instead. With a pool, closing a connected channel takes at least
/// a millisecond, unless it was stopped before; channels that are stopped together
/// (`channel::stop`) share that time.
///
/// If the pool has no free places, the hub posts receives again at the first poll after places have
/// returned to the pool. If all posted receives are used up before that, senders are delayed (RNR).
///
/// A `hub_scheduler` (`<verbspp/sender.hpp>`) runs the program's own code within the polls and
/// waits of the hub.
///
/// The queue can't overrun: building a channel fails if the queue has no room for its requests.
/// Polling takes the hub's lock, unless the process has one thread; posting does not, unless the
/// channel's queue is full.
///
/// A shared handle, which is cheap to copy. The channels of a hub keep the hub alive, and the hub
/// keeps its protection domain and its pool alive. A moved-from handle is empty: its functions that
/// return a `result` fail (`invalid_input`). Thread-safe, except for `poll` without slots.
class channel_hub {
 public:
  /// Creates a hub whose channels each post their own receives (see `inbox`).
  /// \errors `invalid_input` if an option is out of range, or above the device's limits;
  /// `resource_exhausted`; as `completion_queue::create`
  [[nodiscard]] static result<channel_hub> create(const class protection_domain& domain,
                                                  const hub_options& options = {}) noexcept;
  /// Creates a hub whose channels receive into the places of a pool, from one shared receive queue.
  /// \errors as above; as `shared_receive_queue::create`; `invalid_input` if the pool belongs to
  /// another protection domain, or is a moved-from handle; those of posting receives
  [[nodiscard]] static result<channel_hub> create(const class protection_domain& domain,
                                                  const message_pool& pool,
                                                  const hub_options& options = {}) noexcept;

  /// Takes the available arrivals, at most one for each slot; never blocks. Does not read the
  /// events of the device: a loop that only polls does not notice that a port or the device has
  /// failed, unless it also calls `context::poll_async_event`.
  /// \returns the slots that were filled, at the beginning of `into`; may be empty
  /// \errors `invalid_input` if there are no slots, if the hub was moved from, or if it has a table
  /// (`hub_clients`); `driver` if the completion queue is broken, which breaks all channels of the
  /// hub; the error of posting receives, if no receive is posted. If another call, such as
  /// `request_notification` or `context::poll_async_event`, has read that the device failed (see
  /// `wait`), this call returns the failure once (`driver`)
  [[nodiscard]] result<std::span<arrival>> poll(std::span<arrival> into) const noexcept;
  /// Calls `channel::poll` on each channel that has completions or other news, for an event loop
  /// whose channels have coroutines or continuations. One call makes no more polls than the hub has
  /// channels, so a busy channel does not block the rest of the loop.
  ///
  ///     VERBSPP_TRY(has_news, hub.request_notification());
  ///     if (!has_news) ... sleep until the descriptor is readable, or the deadline
  ///     VERBSPP_TRYV(hub.poll());
  ///
  /// The messages of a channel that has an inbox go to the inbox. Other messages stay in the hub
  /// until `wait`, or `poll` with slots, is called. A continuation may destroy the hub or its
  /// channels. Thread rule: no other thread may use a channel of the hub during the call.
  /// \errors as `poll` with slots; `invalid_input` if the hub has a table (`hub_clients`)
  [[nodiscard]] result<void> poll() const noexcept;
  /// Like `poll` with slots, but waits for at least one arrival. A failure of the device, of the
  /// hub's queues or of a channel's port also ends the wait. (These are asynchronous events, which
  /// the program still receives.) Later calls return the error again if nothing else has arrived;
  /// the error of a port is returned until the port is active again.
  /// \errors as `poll` with slots; `timed_out`; `cancelled` if a stop was requested; `driver` for
  /// these failures; `resource_exhausted`
  [[nodiscard]] VERBSPP_DATA_PATH result<std::span<arrival>> wait(std::span<arrival> into,
                                                                  call_limit limit) const noexcept {
    std::size_t count = take(into);
    if (count == 0) [[unlikely]] {
      const result<std::size_t> later = wait_longer(into, limit);
      if (!later.has_value()) return later.assume_error();
      count = later.assume_value();
      detail::expect(count != 0);
    }
    return into.first(count);
  }

  /// Reports the channel with this id as if it had news, and wakes a waiting thread: the program
  /// gets an arrival without a message, and a client of `hub_clients` gets a turn. So any thread
  /// can pass work for a channel to the threads that wait. A no-op if no channel has this id.
  void wake(channel_id id) const noexcept;

  /// The descriptor for event loops (`EventSource`). After `request_notification`, it becomes
  /// readable when there may be something for `poll` to find: an arrival, an event on a descriptor
  /// that a channel watches, the limit of a continuation, work for a `hub_scheduler`, or a failure.
  /// -1 if the hub only spins or was moved from, or if the descriptor cannot be created.
  ///
  /// The descriptor is created when it is first needed, and uses two descriptors of the process.
  /// Several threads may each run an event loop with it. Each arrival goes to one thread; other
  /// threads may wake and find no arrival. Other threads may block in `wait` at the same time.
  [[nodiscard]] int file_descriptor() const noexcept;
  /// Arms the descriptor, so that it becomes readable at the next event. Earlier notifications are
  /// discarded.
  /// \returns true if the caller must call `poll` before it sleeps, because there may already be
  /// work for which the descriptor will not become readable
  /// \errors `not_supported` if the hub only spins; `invalid_input` if it was moved from; `driver`
  /// if the device no longer exists; `resource_exhausted`
  [[nodiscard]] result<bool> request_notification() const noexcept;
  /// The time by which the program has to call `poll`. While the pool has too few free places for
  /// the hub's receives, this is 1 ms from now, because returning a place to the pool wakes no
  /// thread. Otherwise it is the maximum.
  [[nodiscard]] wait_limit::time_point deadline() const noexcept;

  /// The number of channels.
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// The maximum number of channels at a time. The indexes of channels are below this number.
  [[nodiscard]] std::uint32_t capacity() const noexcept;
  /// The number of places in the completion queue that are not reserved for requests.
  [[nodiscard]] std::uint64_t room() const noexcept;
  /// The number of receives posted to the shared receive queue; 0 without a pool.
  [[nodiscard]] std::uint32_t receives_posted() const noexcept;
  /// The completion queue; null if the hub was moved from.
  [[nodiscard]] ibv_cq* native_handle() const noexcept;

  /// True for copies of the same handle, and for two empty handles.
  friend bool operator==(const channel_hub& one, const channel_hub& other) noexcept {
    return one.state_ == other.state_;
  }
  friend std::ostream& operator<<(std::ostream& out, const channel_hub& hub);

 private:
  template <transport, queue_pair_parameter_set>
  friend class channel_builder;
  template <class>
  friend class hub_clients;
  friend class hub_scheduler;

  explicit channel_hub(detail::hub_reference state) noexcept : state_(std::move(state)) {}
  /// Like `poll` with slots. \returns the number of slots filled; 0 also in case of an error, which
  /// `wait_longer` returns
  [[nodiscard]] std::size_t take(std::span<arrival> into) const noexcept;
  /// Implements `wait`, if no arrivals were available. \returns the number of slots filled; not the
  /// result of `wait`, so that the compiler can keep that in registers
  [[nodiscard]] result<std::size_t> wait_longer(std::span<arrival> into,
                                                call_limit limit) const noexcept;

  detail::hub_reference state_;
};

}  // namespace verbspp
