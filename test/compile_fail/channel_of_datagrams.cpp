// expect: a channel connects to one peer, by RC or UC
// within: 15
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

auto start(const verbspp::protection_domain& domain) {
#ifdef MUST_FAIL
  return domain.build_channel<verbspp::transport::ud>();
#else
  return domain.build_channel<verbspp::transport::uc>();
#endif
}
