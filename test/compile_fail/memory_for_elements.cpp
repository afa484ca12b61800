// expect: this is not a part of registered memory: write region.gather() for what is sent,
// region.scatter() for what is filled within: 15 variants: 5 SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <cstddef>
#include <span>
#include <string>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

auto post(queue_pair_type& queue_pair, const memory_region<access::local_write>& region,
          const registered_buffer<access::local_write>& buffer, const std::string& text,
          std::span<std::byte> bytes) {
  (void)buffer, (void)text, (void)bytes;
#if MUST_FAIL == 1
  return queue_pair.post_send({.elements = region});
#elif MUST_FAIL == 2
  return queue_pair.post_send({.elements = buffer});
#elif MUST_FAIL == 3
  return queue_pair.post_send({.elements = text});
#elif MUST_FAIL == 4
  return queue_pair.post_send({.elements = bytes});
#elif MUST_FAIL == 5
  return queue_pair.post_receive({.elements = bytes});
#else
  return queue_pair.post_send({.elements = region.gather().value()});
#endif
}
