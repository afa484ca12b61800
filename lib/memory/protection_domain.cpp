// SPDX-License-Identifier: Apache-2.0
#include "device/usable.hpp"
#include "memory/usable.hpp"
#include <verbspp/base/destroy_failure.hpp>
#include <verbspp/base/object_trace.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/thread_domain.hpp>

#include <cerrno>
#include <new>
#include <ostream>
#include <string>

namespace verbspp {

detail::protection_domain_state::protection_domain_state(context parent, ibv_pd* allocated,
                                                         ownership whose) noexcept
    : owner(std::move(parent)), native(allocated), destroyed_by(whose) {}

detail::protection_domain_state::~protection_domain_state() {
  if (destroyed_by == ownership::taken)
    report_destroy(native, errno_of(ibv_dealloc_pd(native)), "ibv_dealloc_pd");
}

protection_domain::protection_domain(
    detail::reference<detail::protection_domain_state> state) noexcept
    : state_(std::move(state)) {}

const class context& protection_domain::context() const& noexcept {
  static const class context none{detail::reference<detail::context_state>()};
  return state_ ? state_->owner : none;
}

protection_domain protection_domain::below() const noexcept {
  return state_ && state_->below ? protection_domain(state_->below) : *this;
}

result<protection_domain> protection_domain::adopt(const class context& parent, ibv_pd* native,
                                                   ownership whose,
                                                   const char* operation) noexcept {
  auto* const state = new (std::nothrow) detail::protection_domain_state(parent, native, whose);
  if (state == nullptr) return error::from_errno(ENOMEM, operation);
  return protection_domain(detail::reference<detail::protection_domain_state>(state));
}

result<protection_domain> protection_domain::allocate(const class context& parent) noexcept {
  constexpr const char* operation = "ibv_alloc_pd";
  VERBSPP_TRYV(detail::check_usable(operation, parent));
  errno = 0;
  ibv_pd* const allocated = ibv_alloc_pd(parent.native_handle());
  if (allocated == nullptr) return error::from_errno(errno, operation);
  auto domain = adopt(parent, allocated, ownership::taken, operation);
  if (domain.has_error())
    ibv_dealloc_pd(allocated);
  else
    detail::trace(operation, allocated);
  return domain;
}

result<protection_domain> protection_domain::create_parent(const protection_domain& domain,
                                                           const thread_domain& threads) noexcept {
  constexpr const char* operation = "ibv_alloc_parent_domain";
  VERBSPP_TRYV(detail::check_usable(operation, domain));
  if (!threads.state_)
    return error(error_kind::invalid_input, operation, "this thread domain was moved from");
  const class context& parent = domain.context();
  if (threads.state_->owner != parent)
    return error(
        error_kind::invalid_input, operation,
        "the protection domain and the thread domain must be created from the same context");
  const protection_domain below = domain.below();
  ibv_parent_domain_init_attr initial{};
  initial.pd = below.native_handle();
  initial.td = threads.native_handle();
  errno = 0;
  ibv_pd* const allocated = ibv_alloc_parent_domain(parent.native_handle(), &initial);
  if (allocated == nullptr) {
    const error failure = error::from_errno(errno, operation);
    if (failure != error_kind::not_supported) return failure;
    return failure.as(error_kind::not_supported,
                      "this driver has no parent domains: use the protection domain itself, whose "
                      "queues take locks");
  }
  auto created = adopt(parent, allocated, ownership::taken, operation);
  if (created.has_error()) {
    ibv_dealloc_pd(allocated);
    return created;
  }
  detail::trace(operation, allocated);
  created.assume_value().state_->below = below.state_;
  created.assume_value().state_->threads = threads.state_;
  return created;
}

result<protection_domain> protection_domain::from_native(const class context& parent,
                                                         ibv_pd* native, ownership whose) noexcept {
  constexpr const char* operation = "protection_domain::from_native";
  VERBSPP_TRYV(detail::check_usable(operation, parent));
  if (native == nullptr) return error(error_kind::invalid_input, operation, "the ibv_pd is null");
  if (native->context != parent.native_handle())
    return error(
        error_kind::invalid_input, operation,
        "the protection domain belongs to another context: pass the one from which it was created");
  return adopt(parent, native, whose, operation);
}

result<ibv_pd*> protection_domain::release() && noexcept {
  constexpr const char* operation = "protection_domain::release";
  VERBSPP_TRYV(detail::check_usable(operation, *this));
  if (state_->below)
    return error(error_kind::invalid_input, operation,
                 "a parent domain cannot be released, because it uses a thread domain that the "
                 "library owns: keep this object for as long as native_handle() is used");
  if (!state_.is_only())
    return error(error_kind::busy, operation,
                 "other handles of the protection domain, or objects that use it, still exist: "
                 "destroy them first");
  ibv_pd* const native = state_->native;
  state_->destroyed_by = ownership::borrowed;
  state_ = {};
  return native;
}

std::ostream& operator<<(std::ostream& out, const protection_domain& domain) {
  if (!domain.state_) return out << "protection domain that was moved from";
  out << (domain.state_->below ? "parent domain " : "protection domain ")
      << std::to_string(domain.native_handle()->handle);
  return out << ", device " << domain.context().device_name();
}

}  // namespace verbspp
