// expect: only memory that was registered with access::local_write can be filled
// variants: 2
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::local_read;
#else
constexpr auto rights = verbspp::access::local_write;
#endif

void use(verbspp::channel& channel, verbspp::registered_buffer<rights>& memory,
         const verbspp::remote_memory<verbspp::access::remote_read>& remote) {
#if !defined(MUST_FAIL) || MUST_FAIL == 1
  static_cast<void>(channel.receive(memory));
#endif
#if !defined(MUST_FAIL) || MUST_FAIL == 2
  static_cast<void>(channel.read(memory, {.remote = remote}));
#endif
}
