// SPDX-License-Identifier: Apache-2.0
#include <verbspp/cm/cm_route.hpp>

namespace verbspp {

namespace detail {

namespace {

constexpr const char* resolving = "resolve a route";

}  // namespace

result<cm_resolution> cm_resolution::start(const cm_address& destination,
                                           const cm_route_options& options, cm_service service,
                                           const wait_limit& limit) noexcept {
  if (destination.is_empty())
    return error(error_kind::invalid_input, resolving,
                 "the destination address is empty: use cm_address::from or from_native");
  if (limit.has_passed())
    return limit.failure(resolving, "the timeout had expired before the resolution began");
  VERBSPP_TRY(id, cm_identifier::create(service));
  if (options.reuse_address) VERBSPP_TRYV(id.set_reuse_address());
  if (options.type_of_service) VERBSPP_TRYV(id.set_type_of_service(*options.type_of_service));
  VERBSPP_TRYV(id.resolve_address(options.source, destination, limit));
  return cm_resolution(std::move(id), limit);
}

error cm_resolution::fail(const error& why) noexcept {
  id_.destroy();
  failed_ = why;
  return why;
}

result<bool> cm_resolution::poll() noexcept {
  if (failed_) return *failed_;
  if (id_.is_empty()) return cm_moved_from(resolving);
  while (state_ != state::done) {
    const char* const step = state_ == state::address ? "rdma_resolve_addr" : "rdma_resolve_route";
    const auto event = id_.next_event();
    if (!event.has_value()) return fail(event.assume_error());
    if (!event.assume_value()) {
      if (limit_.has_passed())
        return fail(
            limit_.failure(step, state_ == state::address
                                     ? "the kernel has not resolved the destination's address yet: "
                                       "check with ping that its host is up, or allow more time"
                                     : "the kernel has not found the route yet: allow more time "
                                       "or, on InfiniBand, check the subnet manager"));
      return false;
    }
    if (state_ == state::address && event.assume_value()->event == cm_event::address_resolved) {
      const auto asked = id_.resolve_route(limit_);
      if (!asked.has_value()) return fail(asked.assume_error());
      state_ = state::route;
    } else if (state_ == state::route && event.assume_value()->event == cm_event::route_resolved) {
      state_ = state::done;
    } else {
      return fail(cm_failure(*event.assume_value(), step));
    }
  }
  return true;
}

result<cm_identifier> cm_resolution::finish() noexcept {
  VERBSPP_TRY(is_done, poll());
  if (!is_done)
    return error(error_kind::busy, "cm_resolver::finish",
                 "the route is not resolved yet: call poll until it returns true");
  return std::move(id_);
}

result<cm_identifier> cm_resolution::run() noexcept {
  for (;;) {
    VERBSPP_TRY(is_done, poll());
    if (is_done) return finish();
    VERBSPP_TRYV(id_.wait_readable(limit_));
  }
}

}  // namespace detail

result<cm_route> cm_route::resolve(const cm_address& destination, const wait_limit& limit,
                                   const cm_route_options& options) noexcept {
  VERBSPP_TRY(resolution, detail::cm_resolution::start(destination, options,
                                                       detail::cm_service::connections, limit));
  VERBSPP_TRY(id, resolution.run());
  return cm_route(std::move(id));
}

detail::cm_parameters cm_route::parameters(const cm_connect_options& options) noexcept {
  return {.responder_resources = 0,
          .initiator_depth = 0,
          .data = cm_acceptance_data::from(options.data.bytes()).assume_value(),
          .retries = options.retries.value(),
          .rnr_retries = options.rnr_retries.code()};
}

}  // namespace verbspp
