// SPDX-License-Identifier: Apache-2.0
#include "device/usable.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/memory/thread_domain.hpp>

#include <cerrno>
#include <new>

namespace verbspp {

detail::thread_domain_state::~thread_domain_state() {
  report_destroy(native, errno_of(ibv_dealloc_td(native)), "ibv_dealloc_td");
}

result<thread_domain> thread_domain::create(const context& parent) noexcept {
  constexpr const char* operation = "ibv_alloc_td";
  VERBSPP_TRYV(detail::check_usable(operation, parent));
  ibv_td_init_attr initial{};
  errno = 0;
  ibv_td* const allocated = ibv_alloc_td(parent.native_handle(), &initial);
  if (allocated == nullptr) {
    const error failure = error::from_errno(errno, operation);
    if (failure != error_kind::not_supported) return failure;
    return failure.as(error_kind::not_supported,
                      "this driver has no thread domains: create the queue pairs in the protection "
                      "domain itself, where they use locks");
  }
  auto* const state = new (std::nothrow) detail::thread_domain_state(parent, allocated);
  if (state == nullptr) {
    ibv_dealloc_td(allocated);
    return error::from_errno(ENOMEM, operation);
  }
  detail::trace(operation, allocated);
  return thread_domain(detail::reference<detail::thread_domain_state>(state));
}

}  // namespace verbspp
