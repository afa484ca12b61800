// expect: a connection manager connects a prepared_channel, or a prepared queue pair of RC
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/cm.hpp>

#include <chrono>
#include <utility>

#ifdef MUST_FAIL
constexpr auto type = verbspp::transport::uc;
#else
constexpr auto type = verbspp::transport::rc;
#endif

bool meet(verbspp::cm_route route, verbspp::prepared_queue_pair<type> prepared) {
  return std::move(route).connect(std::move(prepared), std::chrono::seconds(1)).has_value();
}
