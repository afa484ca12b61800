// SPDX-License-Identifier: Apache-2.0
#include "base/device_process.hpp"
#include "base/readable.hpp"
#include "device/async_events.hpp"
#include "device/usable.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/device/context.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <ostream>
#include <string>

namespace verbspp {

namespace {

constexpr const char* no_such_port = "the device has no port with this number; the first port is 1";

gid_entry entry_from(const ibv_gid_entry& native) noexcept {
  return {.address = gid::from_native(native.gid),
          .type = static_cast<gid_type>(native.gid_type),
          .index = gid_index::assume(static_cast<std::uint8_t>(native.gid_index)),
          .port = port_number::assume(static_cast<std::uint8_t>(native.port_num)),
          .interface_index = native.ndev_ifindex};
}

/// True for an entry of this port whose index fits into an address vector.
bool is_usable(const ibv_gid_entry& native, port_number port) noexcept {
  return native.port_num == port.value() && native.gid_index <= gid_index::maximum;
}

}  // namespace

// Defined here, because instantiating another span type in the header would slow down the
// compilation of all files that include it.
std::span<const gid_entry> gid_table::entries() const& noexcept { return {entries_.get(), size_}; }

detail::context_state::context_state(ibv_context* opened, owned<async_events> events_of) noexcept
    : native(opened), closed_by(ownership::borrowed), events(std::move(events_of)) {}

detail::context_state* detail::context_state::create(ibv_context* opened,
                                                     ownership whose) noexcept {
  owned<async_events> events(new (std::nothrow) async_events(opened));
  if (!events) return nullptr;
  auto* const state = new (std::nothrow) context_state(opened, std::move(events));
  if (state == nullptr) return nullptr;
  state->set_ownership(whose);
  note_device_process();
  return state;
}

void detail::context_state::set_ownership(ownership whose) noexcept {
  closed_by = whose;
  events->is_borrowed = whose == ownership::borrowed;
}

detail::context_state::~context_state() {
  if (closed_by == ownership::borrowed) return;
  errno = 0;  // on failure, ibv_close_device returns -1, and does not promise to set errno
  report_destroy(native, errno_of(ibv_close_device(native)), "ibv_close_device");
}

result<context> context::from_native(ibv_context* native, ownership whose) noexcept {
  constexpr const char* operation = "context::from_native";
  if (native == nullptr)
    return error(error_kind::invalid_input, operation, "the ibv_context is null");
  auto* const state = detail::context_state::create(native, ownership::borrowed);
  if (state == nullptr) return error::from_errno(ENOMEM, operation);
  context adopted{detail::reference<detail::context_state>(state)};
  if (whose == ownership::taken) {
    if (const int errnum = detail::make_nonblocking(native->async_fd); errnum != 0)
      return error::from_errno(errnum, "fcntl (asynchronous events)");
    state->set_ownership(ownership::taken);
  }
  return adopted;
}

result<ibv_context*> context::release() && noexcept {
  constexpr const char* operation = "context::release";
  VERBSPP_TRYV(detail::check_usable(operation, *this));
  if (!state_.is_only())
    return error(error_kind::busy, operation,
                 "other handles of the context, or objects created from it, still exist: destroy "
                 "them first");
  ibv_context* const native = state_->native;
  state_->closed_by = ownership::borrowed;
  state_ = {};
  return native;
}

result<ibv_device_attr> context::query_device() const noexcept {
  constexpr const char* operation = "ibv_query_device";
  VERBSPP_TRYV(detail::check_usable(operation, *this));
  ibv_device_attr attributes{};
  const int errnum = detail::errno_of(ibv_query_device(native_handle(), &attributes));
  if (errnum != 0) return error::from_errno(errnum, operation);
  return attributes;
}

result<std::uint64_t> context::device_clock_khz() const noexcept {
  constexpr const char* operation = "ibv_query_device_ex";
  VERBSPP_TRYV(detail::check_usable(operation, *this));
  ibv_device_attr_ex attributes{};
  const int errnum = detail::errno_of(ibv_query_device_ex(native_handle(), nullptr, &attributes));
  if (errnum != 0) return error::from_errno(errnum, operation);
  if (attributes.hca_core_clock == 0)
    return error(error_kind::not_supported, operation,
                 "the device does not report the frequency of its clock");
  return attributes.hca_core_clock;
}

result<port_attributes> context::query_port(port_number port) const noexcept {
  constexpr const char* operation = "ibv_query_port";
  VERBSPP_TRYV(detail::check_usable(operation, *this));
  ibv_port_attr attributes{};
  const int errnum = detail::errno_of(ibv_query_port(native_handle(), port.value(), &attributes));
  if (errnum != 0)
    return error::from_errno(errnum, operation, errnum == EINVAL ? no_such_port : nullptr);
  return port_attributes(port, attributes);
}

result<port_attributes> context::first_active_port() const noexcept {
  VERBSPP_TRY(device, query_device());
  for (unsigned number = 1; number <= device.phys_port_cnt; ++number) {
    VERBSPP_TRY(port, query_port(port_number::assume(static_cast<std::uint8_t>(number))));
    if (port.is_active()) return port;
  }
  return error(
      error_kind::not_found, "find an active port",
      "no port of the device is active (see `ibv_devinfo`): check the cable, the switch, and the "
      "network interface (Ethernet) or the subnet manager (InfiniBand)");
}

result<gid_entry> context::query_gid(port_number port, gid_index index) const noexcept {
  constexpr const char* operation = "ibv_query_gid_ex";
  VERBSPP_TRYV(detail::check_usable(operation, *this));
  ibv_gid_entry native{};
  const int errnum =
      detail::errno_of(ibv_query_gid_ex(native_handle(), port.value(), index.value(), &native, 0));
  if (errnum == ENODATA)
    return error::from_errno(errnum, operation)
        .as(error_kind::not_found,
            "this entry of the GID table is empty: query_gid_table returns the entries in use");
  if (errnum != 0)
    return error::from_errno(
        errnum, operation,
        errnum == EINVAL
            ? "the device has no such port, or the port's GID table has no entry with this index"
            : nullptr);
  return entry_from(native);
}

result<gid_table> context::query_gid_table(port_number port) const noexcept {
  constexpr const char* operation = "ibv_query_gid_table";
  // The call returns the entries of all ports, so there must be room for the entries of every port.
  VERBSPP_TRY(device, query_device());
  std::size_t room = 0;
  bool found = false;
  for (unsigned number = 1; number <= device.phys_port_cnt; ++number) {
    VERBSPP_TRY(each, query_port(port_number::assume(static_cast<std::uint8_t>(number))));
    room += each.gid_table_length();
    found = found || number == port.value();
  }
  if (!found) return error(error_kind::invalid_input, operation, no_such_port);

  const std::unique_ptr<ibv_gid_entry[]> native(new (std::nothrow) ibv_gid_entry[room]);
  if (native == nullptr) return error::from_errno(ENOMEM, operation);
  const ssize_t got = ibv_query_gid_table(native_handle(), native.get(), room, 0);
  if (got < 0) return error::from_errno(static_cast<int>(-got), operation);

  const ibv_gid_entry* const begin = native.get();
  const ibv_gid_entry* const end = begin + got;
  const auto size = static_cast<std::size_t>(
      std::count_if(begin, end, [&](const ibv_gid_entry& each) { return is_usable(each, port); }));
  detail::owned<gid_entry[]> entries(new (std::nothrow) gid_entry[size]);
  if (!entries) return error::from_errno(ENOMEM, operation);
  gid_entry* next = entries.get();
  for (const ibv_gid_entry* each = begin; each != end; ++each)
    if (is_usable(*each, port)) *next++ = entry_from(*each);
  std::sort(entries.get(), next,
            [](const gid_entry& a, const gid_entry& b) { return a.index < b.index; });
  return gid_table(std::move(entries), size);
}

result<std::optional<async_event>> context::poll_async_event() const noexcept {
  VERBSPP_TRYV(detail::check_usable("ibv_get_async_event", *this));
  return state_->events->next();
}

result<std::optional<async_event>> context::wait_async_event(
    const wait_limit& until) const noexcept {
  for (;;) {
    VERBSPP_TRY(event, poll_async_event());
    if (event || until.has_passed()) return event;
    VERBSPP_TRYV(state_->events->sleep_until(nullptr, until));
  }
}

int context::async_event_file_descriptor() const noexcept {
  return state_ ? state_->events->descriptor() : -1;
}

std::ostream& operator<<(std::ostream& out, const context& opened) {
  if (opened.native_handle() == nullptr) return out << "context that was moved from";
  return out << "context fd " << std::to_string(opened.native_handle()->cmd_fd) << ", device "
             << opened.device_name();
}

}  // namespace verbspp
