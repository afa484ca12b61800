// expect: ignoring return value
// flags: -Werror=unused-result
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

void receive(verbspp::prepared_queue_pair<verbspp::transport::rc>& queue_pair) {
#ifdef MUST_FAIL
  queue_pair.post_receive({});
#else
  if (const auto posted = queue_pair.post_receive({}); posted.has_error()) posted.value();
#endif
}
