// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/asio_library.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/event_source.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>

#include <cassert>
#include <cerrno>
#include <memory>
#include <utility>

namespace verbspp {

namespace detail {
inline namespace VERBSPP_DETAIL_ASIO {

/// The descriptor of an event source and the timer for its deadline, as Asio objects. The
/// `asio_source` shares them with the wait in progress, which may outlive the `asio_source`.
struct asio_waits {
  explicit asio_waits(const net::any_io_executor& executor)
      : descriptor(executor), timer(executor) {}
  asio_waits(const asio_waits&) = delete;
  asio_waits& operator=(const asio_waits&) = delete;
  // The event source owns the descriptor, so Asio must not close it.
  ~asio_waits() { release(); }

  void cancel() noexcept {
    net_error ignored{};
    descriptor.cancel(ignored);  // NOLINT(bugprone-unused-return-value)
  }
  // NOLINTNEXTLINE(bugprone-exception-escape): on Linux, Asio can always release descriptors
  void release() noexcept {
    if (descriptor.is_open()) static_cast<void>(descriptor.release());
    timer.cancel();
  }

  net::posix::stream_descriptor descriptor;
  net::steady_timer timer;
  bool is_due = false;  ///< the timer has ended the wait
};

/// The implementation of `asio_source::async_wait`.
template <class Source>
class asio_wait {
 public:
  asio_wait(Source& source, const std::shared_ptr<asio_waits>& waits)
      : source_(source), waits_(waits) {}

  template <class Self>
  void operator()(Self& self) {
    if (has_begun_) return self.complete(outcome_);
    has_begun_ = true;
    self.reset_cancellation_state(net::enable_total_cancellation());
    const result<bool> requested = source_.request_notification();
    asio_waits& waits = *waits_;
    if (!requested.has_value())
      outcome_ = requested.assume_error();
    else if (!requested.assume_value() && begin_sleep())
      return waits.descriptor.async_wait(net::posix::descriptor_base::wait_read, std::move(self));
    net::post(waits.descriptor.get_executor(), std::move(self));
  }
  template <class Self>
  void operator()(Self& self, const net_error& failed) {
    waits_->timer.cancel();
    const bool is_due = std::exchange(waits_->is_due, false);
    if (!failed || is_due) return self.complete(success());
    if (failed == net::error::operation_aborted)
      return self.complete(
          error(error_kind::cancelled, "asio_source::async_wait", "the wait was cancelled"));
    self.complete(error::from_errno(failed.value(), "asio_source::async_wait"));
  }

 private:
  /// Passes the descriptor to Asio, and sets the timer if the source has a deadline. \returns false
  /// if Asio does not accept the descriptor
  [[nodiscard]] bool begin_sleep() {
    asio_waits& waits = *waits_;
    net_error failed;
    if (!waits.descriptor.is_open()) waits.descriptor.assign(source_.file_descriptor(), failed);
    if (failed) {
      outcome_ = error::from_errno(
          failed.value(), "asio_source::async_wait",
          failed.value() == EEXIST ? "another object of this Asio context, such as another "
                                     "asio_source, already uses the descriptor of this event "
                                     "source: wait with that object, or destroy it first"
                                   : "Asio does not accept the descriptor of this event source");
      return false;
    }
    const wait_limit::time_point deadline = source_.deadline();
    if (deadline == (wait_limit::time_point::max)()) return true;
    waits.timer.expires_at(deadline);
    waits.timer.async_wait([observed = std::weak_ptr(waits_)](const net_error& cancelled) {
      const auto due = observed.lock();
      if (cancelled || !due) return;
      due->is_due = true;
      due->cancel();
    });
    return true;
  }

  Source& source_;
  std::shared_ptr<asio_waits> waits_;
  bool has_begun_ = false;
  result<void> outcome_ = success();
};

}  // namespace VERBSPP_DETAIL_ASIO

template <class Source>
concept WaitsForReading = because(
    !requires(const Source& each) { each.events(); },
    "this source sometimes has to wait until its socket is writable, but an asio_source waits only "
    "until it is readable: let Asio wait on file_descriptor() for the events that events() "
    "returns");

}  // namespace detail

inline namespace VERBSPP_DETAIL_ASIO {

/// Waits for an event source in the loop of an Asio executor: for a hub, a table of clients, a
/// service, an acceptor, a meeting, a barrier, or an object of the connection manager.
///
///     asio_source events(executor, hub);
///     for (;;) {
///       VERBSPP_CO_TRYV(co_await events.async_wait(use_awaitable));
///       VERBSPP_CO_TRY(arrived, hub.poll(slots));
///       ...
///     }
///
/// An `asio_source` does not own the source, which must outlive it and must not be moved. A source
/// can have only one `asio_source` at a time. Use `asio_channel` for channels, and for the inbox of
/// a channel. For an `exchange_session`, let Asio wait on its descriptor for the events that
/// `events()` returns.
///
/// Move-only. It must not outlive the execution context. Thread rule: one thread at a time, as for
/// Asio's own objects. If several threads run the context, the executor has to be a strand.
template <EventSource Source>
  requires detail::WaitsForReading<Source>
class asio_source {
 public:
  using executor_type = detail::net::any_io_executor;

  asio_source(const executor_type& executor, Source& source)
      : source_(&source), waits_(std::make_shared<detail::asio_waits>(executor)) {}
  asio_source(asio_source&&) noexcept = default;
  asio_source& operator=(asio_source&& other) noexcept {
    if (this == &other) return *this;
    end();
    source_ = other.source_;
    waits_ = std::move(other.waits_);
    return *this;
  }
  asio_source(const asio_source&) = delete;
  asio_source& operator=(const asio_source&) = delete;
  /// Cancels the wait.
  ~asio_source() { end(); }

  [[nodiscard]] executor_type get_executor() const {
    assert(waits_ && "this asio_source was moved from");
    return waits_->descriptor.get_executor();
  }
  /// Waits until the source may have work. Then call the source's `poll`. Only one wait may be in
  /// progress. During the wait, do not call functions of the source that may read its events; to
  /// call such a function, `cancel` the wait, and start another wait afterwards.
  ///
  /// Completes with a `result<void>`. A cancellation slot may end the wait, without effects on the
  /// source.
  /// \errors `cancelled`; those of the source's `request_notification`; the errno with which Asio
  /// refuses the descriptor
  template <class Token>
  auto async_wait(Token&& token) {
    assert(waits_ && "this asio_source was moved from");
    return detail::net::async_compose<Token, void(result<void>)>(
        detail::asio_wait<Source>(*source_, waits_), token, waits_->descriptor);
  }
  /// Ends the wait in progress, which completes with `cancelled`, unless it has already found work
  /// or failed. A no-op without a wait, and for a moved-from object.
  void cancel() noexcept {
    if (waits_) waits_->cancel();
  }

 private:
  void end() noexcept {
    if (waits_) waits_->release();
  }

  Source* source_;
  std::shared_ptr<detail::asio_waits> waits_;
};

}  // namespace VERBSPP_DETAIL_ASIO
}  // namespace verbspp
