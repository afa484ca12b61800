// expect: only RC has acknowledgements: on UC and UD there are no timeouts, no retries
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

#ifdef MUST_FAIL
constexpr transport type = transport::uc;
#else
constexpr transport type = transport::rc;
#endif

auto builder() { return build_queue_pair<type>().ack_timeout(14); }
