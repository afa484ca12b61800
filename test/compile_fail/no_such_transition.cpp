// expect: a queue pair of this transport has no such transition: the state diagram in
// expect: docs/queue_pair_states.md
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
constexpr queue_pair_state from = init;
#else
constexpr queue_pair_state from = ready_to_receive;
#endif

auto attributes() { return attributes_for<transport::rc, from, ready_to_send>(); }
