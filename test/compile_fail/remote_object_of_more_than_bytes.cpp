// expect: only objects whose bytes are the same on both ends can be addressed remotely
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/remote_object.hpp>

#include <string>

#ifdef MUST_FAIL
using object = std::string;
#else
using object = int;
#endif

constexpr auto rights = verbspp::access::remote_read;

auto view(const verbspp::remote_memory<rights>& memory) {
  return verbspp::remote_object<object, rights>::at(memory);
}
