// expect-gcc: ignoring returned value of type
// expect-clang: ignoring return value
// flags: -Werror=unused-result
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/channel.hpp>

void write(verbspp::channel& channel, const verbspp::write_operation& operation) {
#ifdef MUST_FAIL
  channel.post_write(operation).value();
#else
  channel.post_write(operation).value().wait().value();
#endif
}
