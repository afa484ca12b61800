// expect: only UD sends datagrams: the queue key, activate() and multicast groups do not exist on
// expect: RC and UC
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
constexpr transport type = transport::rc;
#else
constexpr transport type = transport::ud;
#endif

auto activate(prepared_queue_pair<type> queue_pair) { return std::move(queue_pair).activate(); }
