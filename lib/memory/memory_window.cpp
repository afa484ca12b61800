// SPDX-License-Identifier: Apache-2.0
#include "memory/usable.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/memory/memory_window.hpp>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <ostream>

namespace verbspp {

namespace {

constexpr const char* allocating = "ibv_alloc_mw";

/// True if the device reports support for this type of window. Some drivers report support that
/// they do not have.
bool claims(const ibv_device_attr& device, memory_window_type type) noexcept {
  constexpr unsigned first = IBV_DEVICE_MEM_WINDOW;
  constexpr unsigned second = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return (device.device_cap_flags & (type == memory_window_type::type_1 ? first : second)) != 0;
}

error allocation_failure(int errnum, const protection_domain& domain,
                         memory_window_type type) noexcept {
  const error failure = error::from_errno(errnum, allocating);
  if (failure != error_kind::not_supported && failure != error_kind::invalid_input) return failure;
  const auto device = domain.context().query_device();
  if (!device.has_value()) return failure;
  const bool first = claims(device.assume_value(), memory_window_type::type_1);
  const bool second = claims(device.assume_value(), memory_window_type::type_2);
  const bool claimed = type == memory_window_type::type_1 ? first : second;
  if (claimed && failure == error_kind::invalid_input) return failure;
  return failure.as(
      error_kind::not_supported,
      claimed  ? "the device reports such memory windows, but its driver does not "
                 "support them: register a region for each part that peers may access"
      : first  ? "this device reports memory windows of type 1 only: allocate one of that type"
      : second ? "this device reports memory windows of type 2 only: allocate one of that type"
               : "this device has no memory windows: register a region for each part "
                 "that peers may access, and deregister it to revoke the access");
}

}  // namespace

const char* to_string(memory_window_type type) noexcept {
  switch (type) {
    case memory_window_type::type_1:
      return "type 1";
    case memory_window_type::type_2:
      return "type 2";
  }
  return "unknown type";
}

namespace detail {

result<void> memory_window_owner::allocate(memory_window_type type) noexcept {
  VERBSPP_TRYV(check_usable(allocating, domain_));
  errno = 0;
  native_ = ibv_alloc_mw(domain_.native_handle(), static_cast<ibv_mw_type>(type));
  if (native_ == nullptr) return allocation_failure(errno, domain_, type);
  trace(allocating, native_, native_->rkey);
  return success();
}

result<void> memory_window_owner::adopt(const protection_domain& domain, memory_window_type type,
                                        ibv_mw* native, ownership whose) noexcept {
  constexpr const char* operation = "memory_window::from_native";
  VERBSPP_TRYV(check_usable(operation, domain));
  if (native == nullptr) return error(error_kind::invalid_input, operation, "the ibv_mw is null");
  // C code may have allocated the window in a parent domain, which then has to outlive it.
  if (native->pd == domain.native_handle())
    domain_ = domain;
  else if (native->pd != domain_.native_handle())
    return error(error_kind::invalid_input, operation,
                 "the memory window belongs to another protection domain: pass the one in which it "
                 "was created");
  if (native->type != static_cast<ibv_mw_type>(type))
    return error(error_kind::invalid_input, operation,
                 "the ibv_mw is of a different type (1 or 2, in its member `type`) than this "
                 "memory_window: adopt it as a memory_window of its own type");
  native_ = native;
  whose_ = whose;
  return success();
}

error window_is_gone(const char* operation) noexcept {
  return {error_kind::invalid_input, operation, "this memory window was moved from"};
}

memory_window_owner::~memory_window_owner() {
  if (native_ != nullptr && whose_ == ownership::taken)
    report_destroy(native_, errno_of(ibv_dealloc_mw(native_)), "ibv_dealloc_mw",
                   "peers may still have access through the memory window: do not free the memory");
}

void print(std::ostream& out, const memory_window_owner& window, memory_window_type type) {
  out << "memory window of " << to_string(type);
  if (window.native() == nullptr) {
    out << ", moved from";
    return;
  }
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), ", rkey 0x%08" PRIx32, window.native()->rkey);
  out << text.data() << ", device " << window.domain().context().device_name();
}

}  // namespace detail

}  // namespace verbspp
