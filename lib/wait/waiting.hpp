// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/detail/async_listener.hpp>
#include <verbspp/queue/completion_queue.hpp>
#include <verbspp/wait/detail/condition.hpp>
#include <verbspp/wait/waiting.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// The name of the operation in the error messages of waits.
inline constexpr const char* waiting_on_channel = "wait on a channel";

/// A reference to the function with which a wait looks for its completions. The function processes
/// the available completions, and returns whether the wait is over. It is not called again after it
/// has returned `met`. After `unmet_so_far`, a sleep lasts at most `longest_nap`.
class looking {
 public:
  template <class Look>
  looking(const Look& look) noexcept
      : what_(&look), call_([](const void* what) noexcept -> condition::state {
          return (*static_cast<const Look*>(what))();
        }) {}

  [[nodiscard]] condition::state operator()() const noexcept { return call_(what_); }

 private:
  const void* what_;
  condition::state (*call_)(const void*) noexcept;
};

/// The time during which completions may still arrive after a watched socket has been hung up. A
/// peer's last acknowledgements do not travel over that socket, so they may arrive later than its
/// hang-up.
inline constexpr std::chrono::milliseconds time_of_completions{50};

/// The longest sleep while a thread waits for an event that does not wake it.
inline constexpr std::chrono::milliseconds longest_nap{1};

/// True if the descriptor would end a wait now. False if there is none, or if it is not open.
[[nodiscard]] bool has_ended(const watched_descriptor& watched) noexcept;

/// Waits until `look` returns `met`, or another event ends the wait. No event that arrives
/// between a call of `look` and a sleep is lost. The limit, the descriptors and the listener's
/// events end the wait in every mode; the signal ends a sleep, but not the wait.
/// \param queue must be waitable if the mode sleeps
/// \param also has a listener
/// \returns the event that ended the wait: `completions` if `look` has returned `met`
/// \errors `invalid_input` if a file descriptor is not open; `driver` if the device no longer
/// exists; `resource_exhausted` if no file descriptor is left
[[nodiscard]] result<wait_end> wait_looking(wait_mode mode, const completion_queue& queue,
                                            const also_watched& also, const wait_limit& until,
                                            looking look) noexcept;

/// The time to wait for the asynchronous event that reports a failure, once requests were flushed
/// or polling has failed.
inline constexpr std::chrono::milliseconds time_of_events{20};

/// Returns the failure that the device has reported to the listener. That failure is the cause; a
/// failed completion or poll is only a consequence of it. Reads the available events, and waits for
/// one until the limit is reached. Empty if there is no failure.
[[nodiscard]] std::optional<error> failure_told_to(
    async_listener& listener, const wait_limit& until = (wait_limit::time_point::min)()) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
