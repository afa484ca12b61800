// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/wake_signal.hpp"
#include <verbspp/base/result.hpp>
#include <verbspp/device/async_event.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/detail/async_listener.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Distributes the asynchronous events of a context to the program and to listeners.
///
/// Each event is read, copied and acknowledged by the first thread that polls, which passes the
/// copy to the listeners. Unless that thread is reading for the program, it also queues the copy
/// for the program. So destroying an object does not wait until the program handles its events.
struct [[gnu::visibility("hidden")]] async_events {
  explicit async_events(ibv_context* source) noexcept : native(source) {}
  async_events(const async_events&) = delete;
  async_events& operator=(const async_events&) = delete;
  ~async_events();

  [[nodiscard]] static async_events& of(const context& device) noexcept;
  /// The events of the device that this listener listens to.
  [[nodiscard]] static async_events& of(const async_listener& listener) noexcept;

  /// Returns the next event for the program, if one is available.
  [[nodiscard]] result<std::optional<async_event>> next() noexcept;
  /// Reads the available events, and keeps them for the program; does nothing if reading could
  /// block.
  [[nodiscard]] result<void> collect() noexcept;
  void forget(async_event_element element, std::uint64_t id) noexcept;
  /// A descriptor that is readable while there are events to read or events that were kept. If no
  /// such descriptor can be created, this is the device's own descriptor.
  [[nodiscard]] int descriptor() noexcept;
  /// The device's own descriptor, which is readable while there are events to read; -1 if reading
  /// could block.
  [[nodiscard]] int device_descriptor() const noexcept {
    return can_block() ? -1 : native->async_fd;
  }

  /// The registration of a thread that is about to sleep until events arrive.
  struct sleep {
    /// True if there is an event already, so that the thread was not registered and must not sleep.
    bool is_needless = false;
    /// The descriptor to watch for events to read; -1 if a listener waits and reading could block.
    int device = -1;
    int signal = -1;  ///< the descriptor to watch for events that other threads read
    std::uint64_t entered = 0;
  };
  /// \param listener the listener whose events the thread waits for; null if it waits for the
  /// program's events
  [[nodiscard]] result<sleep> begin_sleep(const async_listener* listener) noexcept;
  void end_sleep(const sleep& ended) noexcept;
  /// Sleeps until there may be an event, or until the limit expires.
  [[nodiscard]] result<void> sleep_until(const async_listener* listener,
                                         const wait_limit& until) noexcept;

  void admit(async_listener& listener) noexcept;
  void admit_port(async_listener& listener, unsigned port) noexcept;
  void wake_by(async_listener& listener, int event_descriptor) noexcept;
  void dismiss(async_listener& listener) noexcept;
  [[nodiscard]] std::optional<async_event> heard_by(const async_listener& listener) noexcept;

  ibv_context* native;
  /// True for a borrowed context, whose descriptor may be in blocking mode. The descriptor of an
  /// owned context is in non-blocking mode.
  bool is_borrowed = true;

 private:
  [[nodiscard]] bool can_block() const noexcept;
  /// Reads one event from the device. Requires `reading_`.
  [[nodiscard]] result<std::optional<async_event>> read(bool is_kept) noexcept;
  // These functions require `lock_`.
  void tell(const async_event& event, const ibv_async_event& source) noexcept;
  void keep(const async_event& event) noexcept;
  void drop_kept(std::size_t index) noexcept;

  /// Held by the thread that reads an event until it has distributed the event, so that events stay
  /// in order. A thread that needs both locks takes this one before `lock_`.
  std::mutex reading_;
  std::mutex lock_;
  wake_signal changed_;
  async_listener* listeners_ = nullptr;
  std::optional<async_event> fatal_;  ///< the failure of the device, if it has failed

  std::array<std::optional<async_event>, kept_async_events> kept_;  ///< the oldest event first
  std::size_t kept_count_ = 0;
  int kept_descriptor_ = -1;  ///< an eventfd that is readable while events are kept
  /// An epoll descriptor for `kept_descriptor_` and the device's own descriptor.
  int descriptor_ = -1;
};

/// Drops the kept events about a destroyed element. Otherwise, an event about a destroyed queue
/// pair could be attributed to a later queue pair with the same number.
void forget_async_events(const context& device, async_event_element element,
                         std::uint64_t id) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
