// expect: the value can't be moved, and this result ends with the expression: keep the
// expect: result in a variable
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/base/result.hpp>

struct pinned {
  pinned() = default;
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;
  int number = 0;
};

verbspp::result<pinned> make() { return verbspp::result<pinned>(std::in_place); }

int use() {
#ifdef MUST_FAIL
  return make().value().number;
#else
  const auto made = make();
  return made.value().number;
#endif
}
