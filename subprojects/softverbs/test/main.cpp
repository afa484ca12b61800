// SPDX-License-Identifier: Apache-2.0

#include "catch.hpp"
#include "support/peer.hpp"

#include <string_view>

int main(int count, char** arguments) {
  // An object of the class `peer` starts this program once more, with these arguments.
  if (count == 3 && std::string_view(arguments[1]) == "--peer") return play(arguments[2]);
  return run_test_cases(count, arguments);
}
