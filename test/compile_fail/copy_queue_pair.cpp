// expect-gcc: /use of deleted function .*queue_pair\(const .*queue_pair/
// expect-clang: /call to deleted constructor of .*queue_pair/
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/queue_pair.hpp>

using queue_pair = verbspp::prepared_queue_pair<verbspp::transport::rc>;

queue_pair take(queue_pair& from) {
#ifdef MUST_FAIL
  return from;
#else
  return std::move(from);
#endif
}
