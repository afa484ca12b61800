// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/channel/channel.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/hub/channel_hub.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/qp/builder.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace verbspp {

/// Collects the parameters of a channel: the optional parameters of a queue pair, and some that
/// only channels have.
///
/// `domain.build_channel()` returns a new builder. Every parameter has a default, so `build` can be
/// called immediately. Unless `access` specifies otherwise, the peer may write memory that is
/// registered for remote access and, on RC, read it. To permit atomics, set `access`.
template <transport Transport, queue_pair_parameter_set Given = queue_pair_parameter_set{}>
class channel_builder : public queue_pair_parameters<channel_builder, Transport, Given> {
 public:
  explicit channel_builder(class protection_domain domain) noexcept : domain_(std::move(domain)) {
    static_assert(Connects<Transport>,
                  "a channel connects to one peer, over RC or UC: for datagrams, build a queue "
                  "pair with build_queue_pair<transport::ud>()");
  }

  /// Sets the limit for waits to which the program passes no limit, except waits that close the
  /// connection or destroy a lease; 30 seconds by default. The largest duration means
  /// `wait_limit::forever`.
  [[nodiscard]] channel_builder default_limit(std::chrono::nanoseconds length) const noexcept {
    channel_builder next = *this;
    next.own_.default_limit = length;
    return next;
  }

  /// Makes the channel use the hub's completion queue instead of a separate one. If the hub has a
  /// message pool, the channel also receives its messages into that pool. The channel keeps the hub
  /// alive.
  [[nodiscard]] channel_builder hub(const channel_hub& hub) const noexcept {
    channel_builder next = *this;
    next.own_.hub = hub.state_;
    next.hub_is_empty_ = !hub.state_;
    return next;
  }

  /// Sets the way in which the channel waits. By default, it spins.
  [[nodiscard]] channel_builder waiting(wait_mode mode) const noexcept {
    channel_builder next = *this;
    next.own_.waiting = mode;
    return next;
  }

  /// Used by the library only: returns the options for a hub that has room for this number of
  /// channels.
  [[nodiscard]] hub_options hub_for(std::uint64_t channels) const noexcept {
    constexpr std::uint64_t most = UINT32_MAX;
    const std::uint64_t each = std::uint64_t{this->settings().max_send_work_requests.value()} +
                               this->settings().max_receive_work_requests.value();
    return {.channels = static_cast<std::uint32_t>(std::min(channels, most)),
            .completions = static_cast<std::uint32_t>(
                std::min(std::min(channels, most) * std::max<std::uint64_t>(each, 1), most)),
            .waiting = own_.waiting};
  }
  /// Used by the library only: the parameters of the channel's queue pairs.
  [[nodiscard]] const detail::queue_pair_settings& of_queue_pairs() const noexcept {
    return this->settings();
  }
  /// Used by the library only.
  [[nodiscard]] const class protection_domain& domain() const noexcept { return domain_; }

  /// Creates the queue pair and, without a hub, its completion queue, and brings the queue pair to
  /// INIT.
  /// \errors as `queue_pair_builder::build` and `completion_queue::create`. In a hub:
  /// `resource_exhausted` if the hub has its maximum number of channels; `invalid_input` if the
  /// hub's completion queue has no room for this channel's requests, if the hub belongs to another
  /// protection domain, if the hub only spins but the channel is to sleep, or if the hub had been
  /// moved from when it was passed to the builder; `driver` if the hub's completion queue is broken
  [[nodiscard]] result<prepared_channel> build() const noexcept {
    static_assert(
        !Given.contains(queue_pair_parameter::shared_receive_queue),
        "channels share receives through a hub, which assigns each message to its channel: "
        "create a channel_hub with a message_pool, and pass it to the builder with .hub(hub)");
    if (hub_is_empty_)
      return error(error_kind::invalid_input, "build a channel of a hub",
                   "this hub was moved from");
    detail::channel_settings settings = own_;
    settings.type = Transport;
    settings.queue_pair = this->settings();
    settings.queue_pair.domain = domain_;
    if constexpr (!Given.contains(queue_pair_parameter::access))
      settings.queue_pair.connection.access =
          access::local_write | access::remote_read | access::remote_write;
    VERBSPP_TRY(core, detail::channel_core::create(settings));
    return prepared_channel(core);
  }

 private:
  template <template <transport, queue_pair_parameter_set> class, transport,
            queue_pair_parameter_set>
  friend class queue_pair_parameters;
  template <transport, queue_pair_parameter_set>
  friend class channel_builder;

  /// Copies the parameters from a builder in which fewer parameters have been set.
  template <queue_pair_parameter_set Fewer>
  explicit channel_builder(const channel_builder<Transport, Fewer>& other) noexcept
      : queue_pair_parameters<verbspp::channel_builder, Transport, Given>(other),
        domain_(other.domain_),
        own_(other.own_),
        hub_is_empty_(other.hub_is_empty_) {}

  class protection_domain domain_;
  detail::channel_settings own_{};
  bool hub_is_empty_ = false;
};

/// Returns a builder for channels that use this transport: RC or UC.
template <transport Transport>
[[nodiscard]] channel_builder<Transport> build_channel(const protection_domain& domain) noexcept {
  return channel_builder<Transport>(domain);
}

template <auto... Transport>
auto protection_domain::build_channel() const noexcept {
  if constexpr (sizeof...(Transport) == 0)
    return channel_builder<transport::rc>(*this);
  else
    return channel_builder<Transport...>(*this);
}

}  // namespace verbspp
