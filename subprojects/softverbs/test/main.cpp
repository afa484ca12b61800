// SPDX-License-Identifier: Apache-2.0

#include "catch.hpp"
#include "support/peer.hpp"

#include <string_view>

int main(int count, char** arguments) {
  // The other process of the tests with two is this program, too.
  if (count == 3 && std::string_view(arguments[1]) == "--peer") return play(arguments[2]);
  return run_test_cases(count, arguments);
}
