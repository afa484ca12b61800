// expect-gcc: /use of deleted function .*channel\(const .*channel/
// expect-clang: /call to implicitly-deleted copy constructor of .*channel/
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

verbspp::channel take(verbspp::channel& from) {
#ifdef MUST_FAIL
  auto copy = from;
  return copy;
#else
  return std::move(from);
#endif
}
