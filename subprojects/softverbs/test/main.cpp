// SPDX-License-Identifier: Apache-2.0

#include "catch.hpp"
#include "support/peer.hpp"

#include <string_view>

int main(int count, char** arguments) {
  // Tests with two processes start this program once more, with this argument.
  if (count == 3 && std::string_view(arguments[1]) == "--peer") return play(arguments[2]);
  return run_test_cases(count, arguments);
}
