// expect: gather receives or reads a part from each peer
// within: 25
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/group.hpp>

void post(verbspp::group_scope& peers) {
#ifdef MUST_FAIL
  static_cast<void>(
      peers.post_gather({0, 1}, [](std::uint32_t) { return verbspp::send_operation(); }));
#else
  static_cast<void>(
      peers.post_gather({0, 1}, [](std::uint32_t) { return verbspp::receive_operation(); }));
#endif
}
