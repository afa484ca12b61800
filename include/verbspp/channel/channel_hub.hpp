// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/channel_id.hpp>
#include <verbspp/channel/detail/hub_reference.hpp>
#include <verbspp/channel/message.hpp>
#include <verbspp/channel/message_pool.hpp>
#include <verbspp/channel/waiting.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/work/transport.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <iosfwd>
#include <span>
#include <utility>

namespace verbspp {

/// How large a hub is.
struct hub_options {
  /// How many channels there can be at once: 1 to 65,535.
  std::uint32_t channels = 64;
  /// How many completions its queue holds: the sum of what all channels and the shared receives can
  /// have outstanding.
  std::uint32_t completions = 4096;
  /// With a pool: how many receives it keeps posted.
  std::uint32_t receives = 256;
  /// With a pool: so many are posted together, with one doorbell: 1 to 64, and at most half of
  /// `receives`.
  std::uint32_t refill = 16;
  /// How `wait` does it, and how its channels may: those of a hub that spins can't sleep.
  wait_mode waiting = wait_mode::spin();
};

/// What a hub has to tell about one of its channels.
struct arrival {
  /// Which channel; compare it with the `id()` of the one that the program has there.
  channel_id source{};
  /// What it received. Empty if there is nothing but news: the channel has completions, of which
  /// its `poll` takes care, and which give the places of its sends back, or tell that it is broken.
  verbspp::message message{};
};

/// Where many channels complete: one completion queue, and, with a pool, one shared receive queue.
///
///     VERBSPP_TRY(hub, channel_hub::create(domain, pool));
///     VERBSPP_TRY(prepared, domain.build_channel().hub(hub).build());
///     ...
///     std::array<arrival, 16> slots;
///     VERBSPP_TRY(arrived, hub.wait(slots, 100ms));
///     for (arrival& each : arrived) ...
///
/// Any thread may wait for the hub; each message goes to one of them. A channel itself stays what
/// it is, the business of one thread at a time: threads that share one lock it, with a mutex beside
/// it, say. Channels of a hub can be on different threads, and wait for their own work as others
/// do; whoever looks for completions hands each to the channel that it belongs to.
///
/// Messages of one channel are handed out in order; with several threads that take them, what these
/// do with them is in the order that they make. What a channel had received and nobody was given is
/// dropped when that channel is closed, renewed or destroyed. If the pool is empty, receives are
/// posted again when places have come back, at the next look; senders wait so long (RNR).
///
/// The queue can't overrun: building a channel for whose work there is no room is an error. The
/// lock of the hub is taken where completions are looked for, not where work is posted.
///
/// A shared handle, cheap to copy, kept alive by its channels; keeps its protection domain and its
/// pool alive. One that was moved from is empty, and refuses everything (`invalid_input`).
/// Thread-safe.
class channel_hub {
 public:
  /// A hub of channels that have receives of their own (see `inbox`).
  /// \errors `invalid_input` if a number is out of its range, or above the device's limits;
  /// `resource_exhausted`; as `completion_queue::create`
  [[nodiscard]] static result<channel_hub> create(const class protection_domain& domain,
                                                  const hub_options& options = {}) noexcept;
  /// A hub of channels that receive into the places of a pool, from one queue.
  /// \errors as above; as `shared_receive_queue::create`; `invalid_input` for a pool of another
  /// protection domain, or that was moved from
  [[nodiscard]] static result<channel_hub> create(const class protection_domain& domain,
                                                  const message_pool& pool,
                                                  const hub_options& options = {}) noexcept;

  /// Takes what has arrived, up to as many as there are slots; never blocks.
  /// \returns the slots that were filled, the first ones; none is a normal answer
  /// \errors `invalid_input` if there are no slots, or the hub was moved from; `driver` if its
  /// completion queue is broken: all of its channels are, then
  [[nodiscard]] result<std::span<arrival>> poll(std::span<arrival> into) const noexcept;
  /// The same, waited for: at least one. What has failed meanwhile ends it, too: the device, the
  /// hub's queues, the port of a channel (asynchronous events, which the program still gets). It
  /// goes on telling so where nothing else has arrived, of a port until that is active again.
  /// \errors as `poll`; `timed_out`; `cancelled` if a stop was requested; `driver` for what has
  /// failed
  [[nodiscard]] result<std::span<arrival>> wait(std::span<arrival> into,
                                                call_limit limit) const noexcept;

  /// How many channels there are.
  [[nodiscard]] std::uint32_t size() const noexcept;
  /// How many there can be at once; their indexes are below that.
  [[nodiscard]] std::uint32_t capacity() const noexcept;
  /// For how many completions there is room that no channel has claimed.
  [[nodiscard]] std::uint64_t room() const noexcept;
  /// How many receives are posted to the shared queue; 0 without a pool.
  [[nodiscard]] std::uint32_t receives_posted() const noexcept;
  /// The completion queue; null if the hub was moved from.
  [[nodiscard]] ibv_cq* native_handle() const noexcept;

  /// True for copies of one handle.
  friend bool operator==(const channel_hub& one, const channel_hub& other) noexcept {
    return one.state_ == other.state_;
  }
  friend std::ostream& operator<<(std::ostream& out, const channel_hub& hub);

 private:
  template <transport, queue_pair_parameter_set>
  friend class channel_builder;
  template <class>
  friend class hub_clients;

  explicit channel_hub(detail::hub_reference state) noexcept : state_(std::move(state)) {}

  detail::hub_reference state_;
};

}  // namespace verbspp
