// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/reference.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/guid.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace verbspp {

class context;

namespace detail {

/// A list that `ibv_get_device_list` returned. The list is freed when the last object that refers
/// to it is destroyed.
struct device_list_state : counted {
  device_list_state(ibv_device** list, int length) noexcept : devices(list), count(length) {}
  device_list_state(const device_list_state&) = delete;
  device_list_state& operator=(const device_list_state&) = delete;
  ~device_list_state();

  ibv_device** devices;
  int count;
};

/// Returns a device's name. The result is never null. It is empty if the device is null, or if
/// libibverbs does not report a name.
[[nodiscard]] const char* name_of(ibv_device* native) noexcept;

}  // namespace detail

/// An RDMA device of this machine, as an entry of a `device_list`. It is cheap to copy, and keeps
/// its list alive.
class device {
 public:
  device(const device&) noexcept = default;
  device(device&& other) noexcept
      : list_(std::move(other.list_)), native_(std::exchange(other.native_, nullptr)) {}
  device& operator=(device other) noexcept {
    std::swap(list_, other.list_);
    std::swap(native_, other.native_);
    return *this;
  }
  ~device() = default;

  /// The kernel's name for the device, such as "mlx5_0"; empty if libibverbs does not report it, or
  /// this device was moved from.
  [[nodiscard]] const char* name() const noexcept VERBSPP_LIFETIMEBOUND {
    return detail::name_of(native_);
  }
  /// The node GUID; zero if libibverbs does not report it, or this device was moved from.
  [[nodiscard]] verbspp::guid guid() const noexcept;
  [[nodiscard]] ibv_node_type node_type() const noexcept;
  [[nodiscard]] ibv_transport_type transport_type() const noexcept;

  /// Opens the device (`ibv_open_device`). Each call returns a separate context.
  /// \errors `permission` if the process has no access to /dev/infiniband; `not_found` if the
  /// device no longer exists; `resource_exhausted`, `driver`; `invalid_input` if this device was
  /// moved from
  [[nodiscard]] result<context> open() const noexcept;

  /// Null if this device was moved from.
  [[nodiscard]] ibv_device* native_handle() const noexcept { return native_; }

 private:
  friend class device_list;
  device(detail::reference<detail::device_list_state> list, ibv_device* native) noexcept
      : list_(std::move(list)), native_(native) {}

  detail::reference<detail::device_list_state> list_;
  ibv_device* native_;
};

/// The RDMA devices of this machine at the time of the query, in the order in which libibverbs
/// lists them.
class device_list {
 public:
  class iterator {
   public:
    using value_type = device;
    using difference_type = std::ptrdiff_t;

    iterator() noexcept = default;
    device operator*() const noexcept { return (*list_)[index_]; }
    iterator& operator++() noexcept {
      ++index_;
      return *this;
    }
    iterator operator++(int) noexcept {
      iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const iterator& a, const iterator& b) noexcept {
      return a.index_ == b.index_;
    }

   private:
    friend class device_list;
    iterator(const device_list* list, std::size_t index) noexcept : list_(list), index_(index) {}
    const device_list* list_ = nullptr;
    std::size_t index_ = 0;
  };

  /// Queries the devices (`ibv_get_device_list`). The list is empty if the machine has none.
  /// \errors `not_supported` if the kernel does not support RDMA; `permission`,
  /// `resource_exhausted`, `driver`
  [[nodiscard]] static result<device_list> query() noexcept;

  [[nodiscard]] std::size_t size() const noexcept {
    return state_ ? static_cast<std::size_t>(state_->count) : 0;
  }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  /// \pre index < size()
  [[nodiscard]] device operator[](std::size_t index) const noexcept {
    return {state_, state_->devices[index]};
  }
  [[nodiscard]] iterator begin() const& noexcept VERBSPP_LIFETIMEBOUND { return {this, 0}; }
  void begin() const&& = delete;  // iterators point to the list: store the list in a variable
  [[nodiscard]] iterator end() const& noexcept VERBSPP_LIFETIMEBOUND { return {this, size()}; }
  void end() const&& = delete;  // iterators point to the list: store the list in a variable

  /// \errors `not_found` if no device has that name; `invalid_input` if this list was moved from
  [[nodiscard]] result<device> find(std::string_view name) const noexcept;

 private:
  explicit device_list(detail::reference<detail::device_list_state> state) noexcept
      : state_(std::move(state)) {}

  detail::reference<detail::device_list_state> state_;
};

}  // namespace verbspp
