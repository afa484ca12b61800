// SPDX-License-Identifier: Apache-2.0
#include "base/readable.hpp"
#include <verbspp/base/detail/words.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/device.hpp>

#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <string_view>

namespace verbspp {

namespace {

/// A text of limited length. Characters other than printable ASCII are replaced with question
/// marks.
class short_words {
 public:
  void add(std::string_view text) noexcept {
    for (const char letter : text.substr(0, text_.size() - size_))
      text_[size_++] = letter >= ' ' && letter <= '~' ? letter : '?';
  }
  void add_cut(std::string_view text, std::size_t longest) noexcept {
    add(text.substr(0, longest));
    if (text.size() > longest) add("...");
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, detail::longest_words> text_{};
  std::size_t size_ = 0;
};

/// Returns the error, which names both the missing device and the devices that exist.
error missing_device(std::string_view name, const device_list& present) noexcept {
  constexpr std::size_t longest_name = 64;
  constexpr std::size_t longest_list = detail::longest_words - longest_name - 8;
  short_words words;
  words.add("no RDMA device has the name \"");
  words.add_cut(name, longest_name);
  words.add("\"; libibverbs reports ");
  bool is_first = true;
  for (const device& each : present) {
    if (!is_first) words.add(", ");
    if (words.size() >= longest_list) {
      words.add("...");
      break;
    }
    words.add_cut(*each.name() != '\0' ? each.name() : "(no name)", longest_name);
    is_first = false;
  }
  return detail::error_in_words(error_kind::not_found, "find device", words.view())
      .as(error_kind::not_found, "`ibv_devices` lists the names");
}

}  // namespace

detail::device_list_state::~device_list_state() { ibv_free_device_list(devices); }

const char* detail::name_of(ibv_device* native) noexcept {
  const char* const name = native != nullptr ? ibv_get_device_name(native) : nullptr;
  return name != nullptr ? name : "";
}

result<device_list> device_list::query() noexcept {
  constexpr const char* operation = "ibv_get_device_list";
  int count = 0;
  errno = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  if (devices == nullptr) {
    const int errnum = errno;
    return error::from_errno(
        errnum, operation,
        errnum == ENOSYS ? "libibverbs found no usable kernel support for RDMA in /sys: load "
                           "ib_uverbs and, in a container, mount /sys"
                         : nullptr);
  }
  auto* const state = new (std::nothrow) detail::device_list_state(devices, count);
  if (state == nullptr) {
    ibv_free_device_list(devices);
    return error::from_errno(ENOMEM, operation);
  }
  return device_list(detail::reference<detail::device_list_state>(state));
}

result<device> device_list::find(std::string_view name) const noexcept {
  if (!state_)
    return error(error_kind::invalid_input, "find device", "this list of devices was moved from");
  if (!name.empty())  // devices whose name is unknown have an empty name
    for (const device& candidate : *this)
      if (name == candidate.name()) return candidate;
  if (empty())
    return error(error_kind::not_found, "find device",
                 "libibverbs reports no RDMA device: check `rdma link`, and that the driver and "
                 "its provider library are installed");
  return missing_device(name, *this);
}

guid device::guid() const noexcept {
  return verbspp::guid(native_ != nullptr ? be64toh(ibv_get_device_guid(native_)) : 0);
}

ibv_node_type device::node_type() const noexcept {
  return native_ != nullptr ? native_->node_type : IBV_NODE_UNKNOWN;
}

ibv_transport_type device::transport_type() const noexcept {
  return native_ != nullptr ? native_->transport_type : IBV_TRANSPORT_UNKNOWN;
}

result<context> device::open() const noexcept {
  constexpr const char* operation = "ibv_open_device";
  if (native_ == nullptr)
    return error(error_kind::invalid_input, operation, "this device was moved from");
  errno = 0;
  ibv_context* const opened = ibv_open_device(native_);
  if (opened == nullptr) {
    const int errnum = errno;
    return error::from_errno(
        errnum, operation,
        errnum == EACCES || errnum == EPERM
            ? "this process has no access to the device: check the permissions of "
              "/dev/infiniband/uverbs*, the devices of the container, and the "
              "network namespace (`rdma system`)"
            : nullptr);
  }
  if (const int errnum = detail::make_nonblocking(opened->async_fd); errnum != 0) {
    ibv_close_device(opened);
    return error::from_errno(errnum, "fcntl (asynchronous events)");
  }
  auto* const state = detail::context_state::create(opened, ownership::taken);
  if (state == nullptr) {
    ibv_close_device(opened);
    return error::from_errno(ENOMEM, operation);
  }
  detail::trace(operation, opened);
  return context(detail::reference<detail::context_state>(state));
}

result<context> open_device(std::string_view name) noexcept {
  VERBSPP_TRY(devices, device_list::query());
  VERBSPP_TRY(found, devices.find(name));
  return found.open();
}

}  // namespace verbspp
