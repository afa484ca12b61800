// expect: work that owns its memory takes it over: write std::move(buffer); it
// variants: 3
// within: 20
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

void post(verbspp::channel& channel, verbspp::registered_buffer<>& buffer,
          const verbspp::remote_memory<verbspp::access::remote_write>& remote) {
#ifdef MUST_FAIL
#if MUST_FAIL == 1
  static_cast<void>(channel.post_send(buffer));
#elif MUST_FAIL == 2
  static_cast<void>(channel.post_receive(buffer));
#else
  static_cast<void>(channel.post_write(buffer, {.remote = remote}));
#endif
#else
  static_cast<void>(channel.post_write(std::move(buffer), {.remote = remote}));
#endif
}
