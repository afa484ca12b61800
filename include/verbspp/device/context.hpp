// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/device/async_event.hpp>
#include <verbspp/device/device.hpp>
#include <verbspp/device/port.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace verbspp {

namespace detail {

struct async_events;
class async_listener;

/// The maximum number of asynchronous events that are kept until the program reads them.
inline constexpr std::size_t kept_async_events = 64;

struct context_state : counted {
  /// Creates the state of an opened context. Returns null if there is not enough memory.
  [[nodiscard]] static context_state* create(ibv_context* opened, ownership whose) noexcept;
  context_state(const context_state&) = delete;
  context_state& operator=(const context_state&) = delete;
  ~context_state();

  /// Sets whether the destructor closes the context. With `ownership::taken`, the file descriptor
  /// of the asynchronous events must be non-blocking.
  void set_ownership(ownership whose) noexcept;

  ibv_context* native;
  ownership closed_by;
  owned<async_events> events;

 private:
  context_state(ibv_context* opened, owned<async_events> events_of) noexcept;
};

}  // namespace detail

/// The entries of a GID table that are in use, in the order of their indices.
class gid_table {
 public:
  gid_table(gid_table&& other) noexcept
      : entries_(std::move(other.entries_)), size_(std::exchange(other.size_, 0)) {}
  gid_table& operator=(gid_table&& other) noexcept {
    gid_table taken(std::move(other));
    std::swap(entries_, taken.entries_);
    std::swap(size_, taken.size_);
    return *this;
  }

  [[nodiscard]] std::span<const gid_entry> entries() const& noexcept VERBSPP_LIFETIMEBOUND;
  void entries() const&& = delete;  // a temporary frees its entries: store the table in a variable
  [[nodiscard]] const gid_entry* begin() const& noexcept VERBSPP_LIFETIMEBOUND {
    return entries_.get();
  }
  void begin() const&& = delete;  // a temporary frees its entries: store the table in a variable
  [[nodiscard]] const gid_entry* end() const& noexcept VERBSPP_LIFETIMEBOUND {
    return entries_.get() + size_;
  }
  void end() const&& = delete;  // a temporary frees its entries: store the table in a variable
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

 private:
  friend class context;
  gid_table(detail::owned<gid_entry[]> entries, std::size_t size) noexcept
      : entries_(std::move(entries)), size_(size) {}

  detail::owned<gid_entry[]> entries_;
  std::size_t size_;
};

/// An opened device. A context is a shared handle, which is cheap to copy. Unless the context is
/// borrowed, the device is closed when the last copy and the last object created from it have been
/// destroyed. Thread-safe. Unless stated otherwise, calls on a moved-from context return
/// `invalid_input`, and so does creating objects from it. Queries may also return the errno of the
/// driver.
class context {
 public:
  /// Takes ownership of a context that was opened elsewhere, or borrows it. A context that
  /// librdmacm owns (`id->verbs`) must be borrowed. If the context is taken, the file descriptor of
  /// its asynchronous events is made non-blocking. If it is borrowed, the descriptor is left
  /// unchanged, and `poll_async_event` may block if other code reads events, too.
  /// \errors `invalid_input` if `native` is null; `resource_exhausted`; `driver` if the descriptor
  /// cannot be made non-blocking
  [[nodiscard]] static result<context> from_native(ibv_context* native, ownership whose) noexcept;
  /// Returns the context, which is still open, and ends its use by the library. Unless the context
  /// was borrowed, the caller now owns it and must close it; the file descriptor of its
  /// asynchronous events is then non-blocking.
  /// \errors `busy` if other handles to the context or objects created from it exist; this handle
  /// then keeps the context. `invalid_input` if this handle was moved from
  [[nodiscard]] result<ibv_context*> release() && noexcept;

  /// The limits and capabilities of the device (`ibv_query_device`).
  [[nodiscard]] result<ibv_device_attr> query_device() const noexcept;
  /// The frequency of the clock that timestamps completions, in kHz (`ibv_query_device_ex`).
  /// \errors `not_supported` if the device does not report it
  [[nodiscard]] result<std::uint64_t> device_clock_khz() const noexcept;

  /// The state and properties of one port (`ibv_query_port`).
  /// \errors `invalid_input` if the device has no such port
  [[nodiscard]] result<port_attributes> query_port(port_number port) const noexcept;

  /// The first active port.
  /// \errors `not_found` if no port is active
  [[nodiscard]] result<port_attributes> first_active_port() const noexcept;

  /// One entry of a port's GID table (`ibv_query_gid_ex`).
  /// \errors `not_found` if the entry is empty; `invalid_input` if the device has no such port, or
  /// the index is beyond the table
  [[nodiscard]] result<gid_entry> query_gid(port_number port, gid_index index) const noexcept;

  /// The entries of a port's GID table that are in use. Entries with an index above 255 are
  /// omitted, because an address vector cannot refer to them.
  /// \errors `invalid_input` if the device has no such port, `resource_exhausted`
  [[nodiscard]] result<gid_table> query_gid_table(port_number port) const noexcept;

  /// Returns the device's next asynchronous event, if one is available (`ibv_get_async_event`).
  /// Does not block, except in the case that `from_native` describes. Each event is returned only
  /// once, to one of the threads that call this. An event about a failure also ends the waits that
  /// watch for it, such as `completion_queue_with::wait_watching` and the waits of channels.
  ///
  /// Waits that watch for failures (`completion_queue_with::wait_watching`) also read the available
  /// events, unless reading could block. The library keeps at most 64 of these events, in order,
  /// and this call returns the kept events first. When there is no room, the oldest event of the
  /// lowest severity is dropped. Kept events about an object are dropped when the library destroys
  /// the object.
  /// \errors `driver` if the device no longer exists
  [[nodiscard]] result<std::optional<async_event>> poll_async_event() const noexcept;
  /// Waits for the next asynchronous event. The result is empty only if the limit is reached first.
  /// Signals do not end the wait.
  /// \errors `driver` if the device no longer exists; `resource_exhausted` if no file descriptor is
  /// left
  [[nodiscard]] result<std::optional<async_event>> wait_async_event(
      const wait_limit& until) const noexcept;
  /// A file descriptor for epoll and poll. It is readable while asynchronous events are available,
  /// including those that the library keeps; call `poll_async_event` until it returns none. The
  /// first call creates the descriptor, later calls return the same one, and it is closed with the
  /// context. Only the library may read it. A moved-from context returns -1. A call that cannot
  /// create the descriptor, usually because the process has none left, returns the descriptor of
  /// the device itself, which does not report kept events.
  [[nodiscard]] int async_event_file_descriptor() const noexcept;

  /// The kernel's name for the device, such as "mlx5_0"; empty if libibverbs does not report it, or
  /// this context was moved from.
  [[nodiscard]] const char* device_name() const noexcept VERBSPP_LIFETIMEBOUND {
    return detail::name_of(state_ ? state_->native->device : nullptr);
  }
  /// Null if this context was moved from.
  [[nodiscard]] ibv_context* native_handle() const noexcept {
    return state_ ? state_->native : nullptr;
  }
  friend std::ostream& operator<<(std::ostream& out, const context& opened);
  /// True if both are handles to the same native context, or both were moved from. Opening a device
  /// twice creates two contexts.
  friend bool operator==(const context& a, const context& b) noexcept {
    return a.native_handle() == b.native_handle();
  }

 private:
  friend class device;
  friend class protection_domain;
  friend struct detail::async_events;
  friend class detail::async_listener;
  explicit context(detail::reference<detail::context_state> state) noexcept
      : state_(std::move(state)) {}

  detail::reference<detail::context_state> state_;
};

/// Opens the device with this name.
/// \errors `not_found`, and the errors of `device_list::query` and `device::open`
[[nodiscard]] result<context> open_device(std::string_view name) noexcept;

}  // namespace verbspp
