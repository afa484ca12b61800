// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/base/config.hpp>

#include <string>

TEST_CASE("the headers have the version of the package") {
  const std::string version = std::to_string(VERBSPP_VERSION_MAJOR) + "." +
                              std::to_string(VERBSPP_VERSION_MINOR) + "." +
                              std::to_string(VERBSPP_VERSION_PATCH);
  CHECK(version == PACKAGE_VERSION);
}
