// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/waiting.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/queue/completion_queue.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// What failures of waits are failures of.
inline constexpr const char* waiting_on_channel = "wait on a channel";

/// What a wait sees when it looks for what it waits for.
enum class sight : std::uint8_t {
  enough,   ///< the wait is over
  nothing,  ///< a completion may change that
  /// The same, but so may something that wakes nobody, such as a place that comes back to a pool: a
  /// sleep has to be short.
  nothing_yet,
};

/// Refers to what a wait calls to look, which takes the completions that are there. After it has
/// seen enough, it is not called again. Does not own it.
class looking {
 public:
  template <class Look>
  looking(const Look& look) noexcept
      : what_(&look), call_([](const void* what) noexcept -> sight {
          return (*static_cast<const Look*>(what))();
        }) {}

  [[nodiscard]] sight operator()() const noexcept { return call_(what_); }

 private:
  const void* what_;
  sight (*call_)(const void*) noexcept;
};

/// How to wait, and what ends it besides what is looked for.
struct wait_terms {
  wait_mode mode;
  const completion_queue& queue;  ///< if the mode sleeps, one that can be waited for
  async_listener& listener;       ///< has to listen
  const wait_limit& until;
  watched_descriptor descriptor{};
  watched_descriptor another{};
};

/// Whether the descriptor, which is open, would end a wait now.
[[nodiscard]] bool has_ended(const watched_descriptor& watched) noexcept;

/// Waits: all that wait for completions of channels do it here. Nothing is lost between a look and
/// a sleep, and the limit, the descriptor and what the listener hears end it however it waits.
/// \returns what ended it: `completions` if there was enough
/// \errors `invalid_input` if a file descriptor is not open; `driver` if the device is gone;
/// `resource_exhausted` for file descriptors
[[nodiscard]] result<wait_end> wait_looking(const wait_terms& terms, looking look) noexcept;

/// How long the event of a failure may come after the completions that it flushed.
inline constexpr std::chrono::milliseconds time_of_events{20};

/// What has failed, as the device told the listener, of which a failed completion or poll tells the
/// consequence only. Reads the events that are there, and waits until the limit for one. Empty if
/// it was told nothing.
[[nodiscard]] std::optional<error> failure_told_to(
    async_listener& listener, const wait_limit& until = (wait_limit::time_point::min)()) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
