// SPDX-License-Identifier: Apache-2.0
#include "device/usable.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/memory/protection_domain.hpp>

#include <cerrno>
#include <new>

namespace verbspp {

detail::protection_domain_state::~protection_domain_state() {
  report_destroy(errno_of(ibv_dealloc_pd(native)), "ibv_dealloc_pd");
}

const class context& protection_domain::context() const& noexcept {
  static const class context none{detail::reference<detail::context_state>()};
  return state_ ? state_->owner : none;
}

result<protection_domain> protection_domain::allocate(const class context& parent) noexcept {
  constexpr const char* operation = "ibv_alloc_pd";
  VERBSPP_TRYV(detail::check_usable(operation, parent));
  errno = 0;
  ibv_pd* const allocated = ibv_alloc_pd(parent.native_handle());
  if (allocated == nullptr) return error::from_errno(errno, operation);
  auto* const state = new (std::nothrow) detail::protection_domain_state(parent, allocated);
  if (state == nullptr) {
    ibv_dealloc_pd(allocated);
    return error::from_errno(ENOMEM, operation);
  }
  return protection_domain(detail::reference<detail::protection_domain_state>(state));
}

}  // namespace verbspp
