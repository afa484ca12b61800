// expect: only a queue pair in RESET can be prepared: see to_reset()
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
using queue_pair_type = connected_queue_pair<transport::rc>;
#else
using queue_pair_type = queue_pair<transport::rc, reset>;
#endif

auto prepare(queue_pair_type queue_pair) { return std::move(queue_pair).prepare(); }
