// expect: this parameter was given already
// within: 15
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

auto start(const verbspp::protection_domain& domain) {
  const auto builder = domain.build_channel().max_send_work_requests(64);
#ifdef MUST_FAIL
  return builder.max_send_work_requests(32).build();
#else
  return builder.max_receive_work_requests(32).build();
#endif
}
