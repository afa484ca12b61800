// SPDX-License-Identifier: Apache-2.0
#include "faults/fault_grammar.hpp"

#include "catch.hpp"

#include <cerrno>
#include <string>

namespace softverbs::faults {
namespace {

fault read(const std::string& text) {
  const char* problem = nullptr;
  const auto result = read_fault(text, device_names::soft, problem);
  INFO(text << ": " << (problem != nullptr ? problem : ""));
  REQUIRE(result);
  return *result;
}

}  // namespace

TEST_CASE("the percentage of a fault is rounded to millionths") {
  CHECK(read("packet:0.0001%=lost").chance == 1);
  CHECK(read("packet:0.0003%=lost").chance == 3);
  CHECK(read("packet:0.00028%=lost").chance == 3);
  CHECK(read("packet:0.00032%=lost").chance == 3);
  CHECK(read("packet:33.3333%=lost").chance == 333'333);
  CHECK(read("packet:100%=lost").chance == 1'000'000);
}

TEST_CASE("a fault names an errno value by any of its names") {
  CHECK(read("ibv_alloc_pd=ENOMEM").what.number == ENOMEM);
  CHECK(read("ibv_alloc_pd=EOPNOTSUPP").what.number == EOPNOTSUPP);
  CHECK(read("ibv_alloc_pd=ENOTSUP").what.number == ENOTSUP);
  CHECK(read("ibv_alloc_pd=EAGAIN").what.number == EAGAIN);
  CHECK(read("ibv_alloc_pd=EWOULDBLOCK").what.number == EWOULDBLOCK);
  CHECK(read("ibv_alloc_pd=EDEADLK").what.number == EDEADLK);
  CHECK(read("ibv_alloc_pd=EDEADLOCK").what.number == EDEADLOCK);
}

}  // namespace softverbs::faults
