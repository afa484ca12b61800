// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"

#include <infiniband/verbs.h>

#include <cstdlib>
#include <string>
#include <vector>

// The other tests assume that the device exists. If it is missing, this test says so clearly.
TEST_CASE("the device under test exists") {
  const char* chosen = std::getenv("VERBSPP_TEST_DEVICE");
  const std::string wanted = chosen != nullptr ? chosen : "soft0";

  std::vector<std::string> names;
  ibv_device** list = ibv_get_device_list(nullptr);
  REQUIRE(list != nullptr);
  for (ibv_device** device = list; *device != nullptr; ++device) {
    names.emplace_back(ibv_get_device_name(*device));
  }
  ibv_free_device_list(list);

  CHECK_THAT(names, Catch::Matchers::VectorContains(wanted));
}
