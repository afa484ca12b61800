// expect: this remote memory lacks access::remote_read: its owner did not grant reads
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::remote_write;
#else
constexpr auto rights = verbspp::access::remote_read;
#endif

auto read(verbspp::connected_queue_pair<verbspp::transport::rc>& queue_pair,
          const verbspp::scatter_element& part, const verbspp::remote_memory<rights>& remote) {
  return queue_pair.post_read({.elements = part, .remote = remote});
}
