// SPDX-License-Identifier: Apache-2.0
#include "core/lease_book.hpp"

#include "quirks/rxe.hpp"
#include <verbspp/base/object_trace.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/work/operations.hpp>

#include <infiniband/verbs.h>

#include <cerrno>
#include <new>
#include <utility>

namespace verbspp::detail {

error without_windows(const char* operation, int errnum) noexcept {
  constexpr const char* hint =
      "this channel or device has no memory windows that requests can bind and invalidate: use "
      "lease_by::registration, as in channel.lease<rights, lease_by::registration>(...), or "
      "lease_by::connection, whose leases are revoked by closing the connection";
  if (errnum == 0) return {error_kind::not_supported, operation, hint};
  return error::from_errno(errnum, operation).as(error_kind::not_supported, hint);
}

void lease_record::deallocate_window() noexcept {
  ibv_mw* const native = window.release();
  const int errnum = errno_of(ibv_dealloc_mw(native));
  if (errnum == 0)
    trace("ibv_dealloc_mw", native);
  else
    outcome = error::from_errno(
        errnum, "ibv_dealloc_mw",
        "the peer may still have access through the memory window: do not free the memory");
}

bool lease_record::post_invalidation() noexcept {
  if (invalidation) return true;
  request posted;
  if (!core->post(local_invalidate_operation{.rkey = key}, posted).has_value()) return false;
  core->sends().note_unheld(posted.number);
  invalidation = posted;
  return true;
}

void lease_record::give_up() noexcept {
  if (window.native() != nullptr && !is_void) deallocate_window();
  if (own) outcome = own->deregister();
}

lease_book::~lease_book() {
  while (idle_ != nullptr) delete std::exchange(idle_, idle_->next);
}

result<void> lease_book::check_windows(const channel_core& core) noexcept {
  if (is_checked_) return success();
  VERBSPP_TRY(device, core.connection().domain().context().query_device());
  constexpr unsigned of_type_2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  if ((device.device_cap_flags & of_type_2) == 0 ||
      (device.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) == 0)
    return without_windows(granting_lease);
  invalidates_ = may_invalidate_windows(device);
  is_checked_ = true;
  return success();
}

result<lease_record*> lease_book::take_window(const protection_domain& domain) noexcept {
  lease_record* const last = idle_;
  if (last != nullptr && !last->is_worn()) {
    idle_ = last->next;
    return last;
  }
  memory_window_owner window(domain);
  const auto allocated = window.allocate(memory_window_type::type_2);
  if (!allocated.has_value()) {
    const error e = allocated.assume_error();
    if (e == error_kind::not_supported) return without_windows(e.operation(), e.native_errno());
    return e;
  }
  auto* const fresh = new (std::nothrow) lease_record(std::move(window));
  if (fresh == nullptr) return error::from_errno(ENOMEM, granting_lease);
  // The old window is deallocated only now. Otherwise, the device could assign the old window's
  // number, and so its keys, to the new window.
  if (last != nullptr) {
    idle_ = last->next;
    delete last;
  }
  return fresh;
}

void lease_book::put_back(lease_record& record) noexcept {
  record.next = idle_;
  idle_ = &record;
}

void lease_book::open(lease_record& record, channel_core& core) noexcept {
  record.core = &core;
  record.previous = nullptr;
  record.next = opened_;
  if (opened_ != nullptr) opened_->previous = &record;
  opened_ = &record;
}

void lease_book::close(lease_record& record) noexcept {
  record.core = nullptr;
  if (record.previous != nullptr)
    record.previous->next = record.next;
  else
    opened_ = record.next;
  if (record.next != nullptr) record.next->previous = record.previous;
}

void lease_book::before_destruction() noexcept {
  for (lease_record* each = opened_; each != nullptr;) {
    lease_record& record = *std::exchange(each, each->next);
    if (record.granted.by == lease_by::connection) continue;
    record.give_up();
    close(record);
  }
}

void lease_book::after_destruction(int errnum) noexcept {
  while (opened_ != nullptr) {
    if (errnum != 0)
      opened_->outcome = error::from_errno(
          errnum, "ibv_destroy_qp",
          "the peer may still have access through the queue pair: do not free the memory");
    close(*opened_);
  }
}

void lease_book::note_invalidated(std::uint32_t rkey) noexcept {
  for (lease_record* each = opened_; each != nullptr; each = each->next)
    if (each->granted.by == lease_by::window && each->key.value() == rkey) each->is_void = true;
}

}  // namespace verbspp::detail
