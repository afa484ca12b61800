// expect: access::remote_write and access::remote_atomic need access::local_write as well
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/dmabuf_region.hpp>

#ifdef MUST_FAIL
constexpr auto rights = verbspp::access::remote_write;
#else
constexpr auto rights = verbspp::access::remote_write | verbspp::access::local_write;
#endif

auto add(const verbspp::protection_domain& pd, int fd) {
  return verbspp::register_dmabuf<rights>(pd, {.file_descriptor = fd, .length = 4096});
}
