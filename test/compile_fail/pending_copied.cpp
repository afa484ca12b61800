// expect-gcc: /use of deleted function .*pending/
// expect-clang: /call to implicitly-deleted copy constructor of .*pending/
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

void wait(verbspp::pending<>& work) {
#ifdef MUST_FAIL
  verbspp::pending<> mine = work;
#else
  verbspp::pending<> mine = std::move(work);
#endif
  static_cast<void>(mine.wait());
}
