// expect: a channel grants its peer memory by leases
// within: 7
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

using namespace verbspp;

auto grant(channel& channel, memory_window<memory_window_type::type_2>& window,
           const window_part<access::remote_write>& part) {
#ifdef MUST_FAIL
  return channel.post_bind(window, part);
#else
  static_cast<void>(window);
  return channel.lease(part);
#endif
}
