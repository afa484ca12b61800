// expect: this transition does not take this attribute: the table in docs/queue_pair_states.md
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
constexpr transport type = transport::uc;
#else
constexpr transport type = transport::rc;
#endif

auto attributes() { return attributes_for<type, init, ready_to_receive>().min_rnr_timer(12); }
