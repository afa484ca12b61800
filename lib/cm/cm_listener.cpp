// SPDX-License-Identifier: Apache-2.0
#include <verbspp/cm/cm_listener.hpp>

namespace verbspp {

namespace {

constexpr int longest_backlog = 1024;

}  // namespace

result<cm_listener> cm_listener::open(const cm_address& address,
                                      const cm_listener_options& options) noexcept {
  constexpr const char* operation = "cm_listener::open";
  if (address.is_empty())
    return error(error_kind::invalid_input, operation,
                 "there is no address to listen at: all of them are cm_address::any(port)");
  if (options.backlog < 1 || options.backlog > longest_backlog)
    return error::out_of_range(operation, "backlog (1..1024)", options.backlog);
  VERBSPP_TRY(id, detail::cm_identifier::create(detail::cm_service::connections));
  if (options.reuse_address) VERBSPP_TRYV(id.set_reuse_address());
  if (options.only_ipv6) VERBSPP_TRYV(id.set_only_ipv6());
  if (options.type_of_service) VERBSPP_TRYV(id.set_type_of_service(*options.type_of_service));
  VERBSPP_TRYV(id.bind(address));
  VERBSPP_TRYV(id.listen(options.backlog));
  return cm_listener(std::move(id));
}

result<std::optional<cm_request>> cm_listener::try_accept() noexcept {
  for (;;) {
    VERBSPP_TRY(event, id_.next_event());
    if (!event) return std::nullopt;
    if (event->event == cm_event::device_removal)
      return detail::cm_failure(*event, "cm_listener::accept");
    if (event->request == nullptr) continue;
    VERBSPP_TRY(request, detail::cm_identifier::adopt(event->request));
    return cm_request(std::move(request), *event);
  }
}

result<cm_request> cm_listener::accept(const wait_limit& limit) noexcept {
  for (;;) {
    VERBSPP_TRY(request, try_accept());
    if (request) return std::move(*request);
    VERBSPP_TRY(is_readable, id_.wait_readable(limit));
    if (!is_readable)
      return limit.failure("cm_listener::accept", "nobody wanted to connect within the limit");
  }
}

}  // namespace verbspp
