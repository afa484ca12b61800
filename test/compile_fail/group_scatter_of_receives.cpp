// expect: scatter sends or writes a part to each peer
// within: 25
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/group.hpp>

void post(verbspp::group& peers) {
#ifdef MUST_FAIL
  static_cast<void>(
      peers.scatter({0, 1}, [](std::uint32_t) { return verbspp::receive_operation(); }));
#else
  static_cast<void>(peers.scatter({0, 1}, [](std::uint32_t) { return verbspp::send_operation(); }));
#endif
}
