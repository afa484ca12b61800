// SPDX-License-Identifier: Apache-2.0
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include "catch.hpp"
#include "peer.hpp"

#include <string_view>

int main(int count, char** arguments) {
  // The other process of the tests with two is this program, too.
  if (count == 3 && std::string_view(arguments[1]) == "--peer") return play(arguments[2]);
  return Catch::Session().run(count, arguments);
}
