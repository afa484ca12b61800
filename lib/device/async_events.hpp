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

/// Hands the asynchronous events of a context to the program and to listeners.
///
/// Each event is read once, by whoever looks first. It tells the listeners; what was not read for
/// the program is kept until the program asks. So an event is acknowledged as soon as it is read,
/// and no object's destruction waits for the program.
struct [[gnu::visibility("hidden")]] async_events {
  explicit async_events(ibv_context* source) noexcept : native(source) {}
  async_events(const async_events&) = delete;
  async_events& operator=(const async_events&) = delete;
  ~async_events();

  [[nodiscard]] static async_events& of(const context& device) noexcept;
  /// Those that a listener listens to.
  [[nodiscard]] static async_events& of(const async_listener& listener) noexcept;

  /// The next event for the program, if there is one.
  [[nodiscard]] result<std::optional<async_event>> next() noexcept;
  /// Reads the events that are there, and keeps them; nothing if that could block.
  [[nodiscard]] result<void> collect() noexcept;
  void forget(async_event_element element, std::uint64_t id) noexcept;
  /// Readable while there are events, kept or not.
  [[nodiscard]] int descriptor() noexcept;

  /// Registers a thread that is about to sleep until events come, unless there is a reason not to.
  struct sleep {
    bool is_needless = false;  ///< something is kept, or was heard; nothing was registered
    int device = -1;           ///< to be watched for events to read; -1 if reading could block
    int signal = -1;           ///< to be watched for events that others read
    std::uint64_t entered = 0;
  };
  /// \param listener null for the program itself, which reads, and waits for what is kept
  [[nodiscard]] result<sleep> begin_sleep(const async_listener* listener) noexcept;
  void end_sleep(const sleep& ended) noexcept;
  /// Sleeps on nothing else, until something may have come or the limit.
  [[nodiscard]] result<void> sleep_until(const async_listener* listener,
                                         const wait_limit& until) noexcept;

  void admit(async_listener& listener) noexcept;
  void admit_port(async_listener& listener, unsigned port) noexcept;
  void dismiss(async_listener& listener) noexcept;
  [[nodiscard]] std::optional<async_event> heard_by(const async_listener& listener) noexcept;

  ibv_context* native;
  /// Whether reading could block; a taken context's cannot.
  bool is_borrowed = true;

 private:
  [[nodiscard]] bool can_block() const noexcept;
  /// Reads one event of the device's. Needs the lock of reading.
  [[nodiscard]] result<std::optional<async_event>> read(bool is_kept) noexcept;
  // These need the lock.
  void tell(const async_event& event, const ibv_async_event& source) noexcept;
  void keep(const async_event& event) noexcept;
  void drop_kept(std::size_t index) noexcept;

  /// Held by the one thread that reads, so that events stay in order. Before the other lock.
  std::mutex reading_;
  std::mutex lock_;
  wake_signal changed_;
  async_listener* listeners_ = nullptr;
  std::optional<async_event> fatal_;  ///< that the device failed

  std::array<std::optional<async_event>, kept_async_events> kept_;  ///< the oldest first
  std::size_t kept_count_ = 0;
  int kept_descriptor_ = -1;  ///< an eventfd that is readable while some are kept
  int descriptor_ = -1;       ///< an epoll of that and the device's
};

/// Drops what is kept about an element that is gone: with the number of a queue pair it could be
/// taken to be about another one.
void forget_async_events(const context& device, async_event_element element,
                         std::uint64_t id) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
