// expect: a call that waits borrows registered memory that names all of itself: a
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

#include <string>

#ifdef MUST_FAIL
using memory_type = std::string;
#else
using memory_type = verbspp::registered_buffer<>;
#endif

void use(verbspp::channel& channel, memory_type& memory) {
  static_cast<void>(channel.send(memory));
}
