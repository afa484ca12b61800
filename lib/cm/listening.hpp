// SPDX-License-Identifier: Apache-2.0
/// \file
/// The code that the listeners for connections and for datagrams have in common.
#pragma once

#include <verbspp/cm/cm_options.hpp>
#include <verbspp/cm/detail/cm_identifier.hpp>

#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

[[nodiscard]] result<cm_identifier> listen_at(const cm_address& address,
                                              const cm_listener_options& options,
                                              cm_service service) noexcept;

template <class Request>
[[nodiscard]] result<std::optional<Request>> try_accept(cm_identifier& listener) noexcept {
  for (;;) {
    VERBSPP_TRY(event, listener.next_event());
    if (!event) return std::nullopt;
    if (event->event == cm_event::device_removal) return cm_failure(*event, "accept");
    if (event->request == nullptr) continue;
    VERBSPP_TRY(request, cm_identifier::adopt(event->request));
    return Request(std::move(request), *event);
  }
}

template <class Request>
[[nodiscard]] result<Request> accept(cm_identifier& listener, const wait_limit& limit) noexcept {
  for (;;) {
    VERBSPP_TRY(request, try_accept<Request>(listener));
    if (request) return std::move(*request);
    VERBSPP_TRY(is_readable, listener.wait_readable(limit));
    if (!is_readable)
      return limit.failure("accept",
                           "no peer has requested a connection or looked up the service: check "
                           "that peers use the address and port of this listener, and that no "
                           "firewall blocks UDP port 4791 (RoCE v2), or allow more time");
  }
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
