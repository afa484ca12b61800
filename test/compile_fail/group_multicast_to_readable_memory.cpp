// expect: and returns remote memory that grants access::remote_write
// within: 25
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/group.hpp>

void post(verbspp::group& peers, const verbspp::gather_element& news,
          const verbspp::remote_memory<verbspp::access::remote_read>& readable,
          const verbspp::remote_memory<verbspp::access::remote_write>& writable) {
#ifdef MUST_FAIL
  static_cast<void>(peers.multicast({0, 1}, news, [&](std::uint32_t) { return readable; }));
  static_cast<void>(writable);
#else
  static_cast<void>(peers.multicast({0, 1}, news, [&](std::uint32_t) { return writable; }));
  static_cast<void>(readable);
#endif
}
