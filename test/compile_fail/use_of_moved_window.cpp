// expect: while it is in the 'consumed' state
// expect: rkey
// only: clang
// flags: -Werror=consumed
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_window.hpp>

using window = verbspp::memory_window<verbspp::memory_window_type::type_2>;
void keep(window kept);

auto use(window window) {
#ifdef MUST_FAIL
  keep(std::move(window));
  return window.rkey();
#else
  auto key = window.rkey();
  keep(std::move(window));
  return key;
#endif
}
