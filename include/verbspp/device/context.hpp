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
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace verbspp {

namespace detail {

struct async_events;
class async_listener;

/// The asynchronous events that are kept at most until the program asks for them.
inline constexpr std::size_t kept_async_events = 64;

struct context_state : counted {
  /// Null if there is no memory.
  [[nodiscard]] static context_state* create(ibv_context* opened, ownership whose) noexcept;
  context_state(const context_state&) = delete;
  context_state& operator=(const context_state&) = delete;
  ~context_state();

  /// What is taken is closed by the destructor; the file descriptor of its asynchronous events has
  /// to be non-blocking.
  void set_ownership(ownership whose) noexcept;

  ibv_context* native;
  ownership closed_by;
  owned<async_events> events;

 private:
  context_state(ibv_context* opened, owned<async_events> events_of) noexcept;
};

}  // namespace detail

/// The entries of a GID table that are in use, in the order of their index.
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
  void entries() const&& = delete;  // a temporary frees its entries: name the table first
  [[nodiscard]] const gid_entry* begin() const& noexcept VERBSPP_LIFETIMEBOUND {
    return entries_.get();
  }
  void begin() const&& = delete;  // a temporary frees its entries: name the table first
  [[nodiscard]] const gid_entry* end() const& noexcept VERBSPP_LIFETIMEBOUND {
    return entries_.get() + size_;
  }
  void end() const&& = delete;  // a temporary frees its entries: name the table first
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

 private:
  friend class context;
  gid_table(detail::owned<gid_entry[]> entries, std::size_t size) noexcept
      : entries_(std::move(entries)), size_(size) {}

  detail::owned<gid_entry[]> entries_;
  std::size_t size_;
};

/// An opened device: a shared handle, cheap to copy, closed when the last copy and the last object
/// made from it are gone. Thread-safe. What is asked of one that was moved from is an error
/// (`invalid_input`), and so is what shall be made of it.
class context {
 public:
  /// Takes over, or borrows, what was opened elsewhere: a context of librdmacm's (`id->verbs`) is
  /// borrowed. The file descriptor of its asynchronous events is made non-blocking if it is taken,
  /// and left as it is if it is borrowed: there `poll_async_event` may block if somebody else reads
  /// events as well.
  /// \errors `invalid_input` for null, `resource_exhausted`
  [[nodiscard]] static result<context> from_native(ibv_context* native, ownership whose) noexcept;
  /// Gives the context away as it is: whoever takes it closes it. The file descriptor of its
  /// asynchronous events is non-blocking, unless the context was borrowed.
  /// \errors `busy` while there are other handles of it, or objects made from it, and it stays as
  /// it is; `invalid_input` if it was moved from
  [[nodiscard]] result<ibv_context*> release() && noexcept;

  /// Limits and abilities of the device (`ibv_query_device`).
  [[nodiscard]] result<ibv_device_attr> query_device() const noexcept;
  /// The frequency of the clock that timestamps of completions count, in kHz
  /// (`ibv_query_device_ex`).
  /// \errors `not_supported` if the device does not tell
  [[nodiscard]] result<std::uint64_t> device_clock_khz() const noexcept;

  /// State and properties of one port (`ibv_query_port`).
  /// \errors `invalid_input` if the device has no such port
  [[nodiscard]] result<port_attributes> query_port(port_number port) const noexcept;

  /// The first port that is active.
  /// \errors `not_found` if none is
  [[nodiscard]] result<port_attributes> first_active_port() const noexcept;

  /// One entry of a port's GID table (`ibv_query_gid_ex`).
  /// \errors `not_found` if the entry is empty, `invalid_input` if the index is beyond the table
  [[nodiscard]] result<gid_entry> query_gid(port_number port, gid_index index) const noexcept;

  /// The entries in use of a port's GID table.
  /// \errors `invalid_input` if the device has no such port, `resource_exhausted`
  [[nodiscard]] result<gid_table> query_gid_table(port_number port) const noexcept;

  /// The next asynchronous event of the device, if one is there; never blocks
  /// (`ibv_get_async_event`). Each goes to one caller, on whatever thread, and besides, if it is a
  /// failure, to those of the library's waits that it ends.
  ///
  /// Waits that watch for failures (`completion_queue_with::wait_watching`) read the events that
  /// are there, and keep them for this: in order, at most 64, of which the oldest of the least
  /// severity is dropped for the next; those about what is destroyed go with it.
  /// \errors `driver` if the device is gone
  [[nodiscard]] result<std::optional<async_event>> poll_async_event() const noexcept;
  /// The next asynchronous event; empty at the limit and not before. Signals do not end it.
  /// \errors `driver` if the device is gone; `resource_exhausted` for file descriptors
  [[nodiscard]] result<std::optional<async_event>> wait_async_event(
      const wait_limit& until) const noexcept;
  /// For epoll and poll: readable while there are asynchronous events, kept ones among them; then
  /// call `poll_async_event` until it gives no more. The same one each time, closed with the
  /// context; nobody but the library may read it. -1 if this context was moved from. Where no file
  /// descriptors are left for it, it is the device's own, which does not tell of kept events.
  [[nodiscard]] int async_event_file_descriptor() const noexcept;

  /// The kernel's name for the device, such as "mlx5_0"; empty if this context was moved from.
  [[nodiscard]] const char* device_name() const noexcept VERBSPP_LIFETIMEBOUND {
    return detail::name_of(state_ ? state_->native->device : nullptr);
  }
  /// Null if this context was moved from.
  [[nodiscard]] ibv_context* native_handle() const noexcept {
    return state_ ? state_->native : nullptr;
  }
  /// True for handles of one native context; a device opened twice gives two.
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

/// The device of that name, opened.
/// \errors `not_found`, and whatever `device_list::query` and `device::open` give
[[nodiscard]] result<context> open_device(std::string_view name) noexcept;

}  // namespace verbspp
