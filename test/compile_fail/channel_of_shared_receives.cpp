// expect: channels share receives by their hub, which knows whose message came
// within: 15
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

using namespace verbspp;

auto build(const protection_domain& domain, const shared_receive_queue& queue,
           const channel_hub& hub) {
#ifdef MUST_FAIL
  static_cast<void>(hub);
  return domain.build_channel().shared_receive_queue(queue).build();
#else
  static_cast<void>(queue);
  return domain.build_channel().hub(hub).build();
#endif
}
