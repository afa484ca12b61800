// SPDX-License-Identifier: Apache-2.0
/// \file
/// From a transport that is known at run time to what the concepts say of it.
#pragma once

#include <verbspp/work/transport.hpp>

#pragma GCC visibility push(hidden)
#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// Calls `call` with the transport as its template argument. It has no answer for what is none of
/// the enumerators; so that the compiler tells of one that is added, nothing here is a default.
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
#pragma GCC visibility pop
