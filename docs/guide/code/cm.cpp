// SPDX-License-Identifier: Apache-2.0
/// \file
/// The code of docs/guide/cookbook.md about IP addresses. It is compiled, not run.

#include <verbspp/channel.hpp>
#include <verbspp/cm.hpp>

#include <chrono>
#include <string_view>
#include <utility>

namespace guide {

using namespace verbspp;
using namespace std::chrono_literals;

/// Connects to a server by its numeric IP address.
result<managed_channel> dial(std::string_view host) {
  VERBSPP_TRY(address, cm_address::from(host, 7174));
  VERBSPP_TRY(route, cm_route::resolve(address, 5s));
  VERBSPP_TRY(context, route.context());
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(prepared, domain.build_channel().build());
  return std::move(route).connect(std::move(prepared), 5s);
}

/// Accepts one client.
result<managed_channel> answer(cm_listener& listener) {
  VERBSPP_TRY(request, listener.accept(30s));
  VERBSPP_TRY(context, request.context());
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(met, std::move(request).accept(std::move(prepared), 5s));
  met.channel.watch(met.connection.file_descriptor());
  return met;
}

result<cm_listener> listen() { return cm_listener::open(cm_address::any(7174)); }

}  // namespace guide
