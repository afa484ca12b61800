// expect: the device writes there: only memory that was registered with
// within: 20
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

void post(verbspp::channel& channel,
          verbspp::registered_buffer<verbspp::access::remote_read>& buffer,
          const verbspp::remote_memory<verbspp::access::remote_write>& remote) {
#ifdef MUST_FAIL
  static_cast<void>(channel.post_receive(std::move(buffer)));
#else
  static_cast<void>(channel.post_write(std::move(buffer), {.remote = remote}));
#endif
}
