// expect: a manual scope wants every result taken, and this gives no handle for them
// within: 25
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/group.hpp>

void post(verbspp::group& peers) {
#ifdef MUST_FAIL
  static_cast<void>(peers.manual_scope([](verbspp::manual_group_scope& scope) {
    static_cast<void>(scope.post_multicast({0, 1}, verbspp::send_operation()));
  }));
#else
  static_cast<void>(peers.manual_scope([](verbspp::manual_group_scope& scope) {
    static_cast<void>(scope[0].post_send(verbspp::send_operation()));
  }));
#endif
}
