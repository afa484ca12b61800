// SPDX-License-Identifier: Apache-2.0
/// \file
/// Short runs of the soak test. The program channel_soak runs it for longer.
#include "../soak/soak.hpp"
#include "device.hpp"

#include <chrono>
#include <random>

using namespace verbspp::test;

namespace {

verbspp::soak::options short_soak(std::chrono::seconds length) {
  verbspp::soak::options wanted;
  wanted.device = device_name();
  wanted.seed = std::random_device()();
  wanted.operations = 10000;
  wanted.at_least = 101;
  wanted.time = length;
  wanted.patience = patience;
  return wanted;
}

}  // namespace

TEST_CASE("channels stay correct under random operations") {
  const auto wanted = short_soak(std::chrono::seconds(3));
  const verbspp::soak::summary found = verbspp::soak::run(wanted);
  INFO("seed " << wanted.seed << '\n' << found.text);
  CHECK(found.failure == "");
  CHECK(found.operations > 100);
}

TEST_CASE("a server of many clients stays correct however clients disconnect") {
  auto wanted = short_soak(std::chrono::seconds(2));
  wanted.clients = 5;
  const verbspp::soak::summary found = verbspp::soak::run_clients(wanted);
  INFO("seed " << wanted.seed << '\n' << found.text);
  CHECK(found.failure == "");
  CHECK(found.operations > 100);
}
