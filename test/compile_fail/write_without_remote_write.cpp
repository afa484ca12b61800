// expect: this remote memory lacks access::remote_write: its owner did not grant writes
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::remote_read;
#else
constexpr auto rights = verbspp::access::remote_write;
#endif

auto write(verbspp::connected_queue_pair<verbspp::transport::rc>& queue_pair,
           const verbspp::gather_element& part, const verbspp::remote_memory<rights>& remote) {
  return queue_pair.post_write({.elements = part, .remote = remote});
}
