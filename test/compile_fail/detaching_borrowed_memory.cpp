// expect-gcc: /use of deleted function .*detach/
// expect-clang: /deleted (member )?function/
// variants: 2
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

void leave(verbspp::pending<>& borrowing, verbspp::pending<verbspp::registered_buffer<>>& owning) {
  (void)borrowing, (void)owning;
#if MUST_FAIL == 1
  static_cast<void>(std::move(borrowing).detach());
#elif MUST_FAIL == 2
  static_cast<void>(owning.detach());
#else
  static_cast<void>(borrowing.wait());
  static_cast<void>(std::move(owning).detach());
#endif
}
