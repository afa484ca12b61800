// expect: collective steps of a world are for trivially copyable values of at most 256 bytes
// within: 25
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/ranks.hpp>

#include <string>

void gather(verbspp::world& all, const std::string& words) {
#ifdef MUST_FAIL
  static_cast<void>(all.all_gather(words, std::chrono::seconds(1)));
#else
  static_cast<void>(all.all_gather(words.size(), std::chrono::seconds(1)));
#endif
}
