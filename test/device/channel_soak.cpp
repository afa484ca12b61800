// SPDX-License-Identifier: Apache-2.0
/// \file
/// The soak in its short form; the program channel_soak does it for longer, on any device.
#include "../soak/soak.hpp"
#include "device.hpp"

#include <chrono>
#include <random>

using namespace verbspp::test;

TEST_CASE("channels that do everything at random to each other stay right") {
  verbspp::soak::options wanted;
  wanted.device = device_name();
  wanted.seed = std::random_device()();
  wanted.operations = 20000;
  wanted.time = std::chrono::seconds(3);
  wanted.patience = patience;
  const verbspp::soak::summary found = verbspp::soak::run(wanted);
  INFO("seed " << wanted.seed << '\n' << found.text);
  CHECK(found.failure == "");
  CHECK(found.operations > 100);
}
