// SPDX-License-Identifier: Apache-2.0
/// \file
/// Turns a transport that is known only at run time into a template argument, as the concepts
/// require.
#pragma once

#include <verbspp/work/transport.hpp>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Calls `call` with the transport as its template argument. There is no default case, so that the
/// compiler warns if an enumerator is added. Values that are not enumerators are not allowed.
template <class Call>
auto by_transport(transport type, Call call) noexcept {
  switch (type) {
    case transport::rc:
      return call.template operator()<transport::rc>();
    case transport::uc:
      return call.template operator()<transport::uc>();
    case transport::ud:
      return call.template operator()<transport::ud>();
  }
  __builtin_unreachable();
}

[[nodiscard]] inline bool acknowledges(transport type) noexcept {
  return by_transport(type, []<transport Transport> { return Acknowledges<Transport>; });
}
[[nodiscard]] inline bool sends_datagrams(transport type) noexcept {
  return by_transport(type, []<transport Transport> { return SendsDatagrams<Transport>; });
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
