// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/device/fork.hpp>

#include <set>
#include <string>

using verbspp::error_kind;
using verbspp::fork_safety;
using verbspp::fork_status;
using verbspp::initialize_fork;

TEST_CASE("fork support can be initialized, and its status is reported") {
  const auto initialized = initialize_fork();
  INFO((initialized.has_error() ? initialized.error().message() : "initialized"));
  REQUIRE((initialized.has_value() || initialized.error() == error_kind::not_supported));
  const auto status = fork_status();
  if (status.has_error()) {
    CHECK(status.error() == error_kind::not_supported);
    CHECK(status.error().hint() != nullptr);
  } else if (initialized.has_value()) {
    CHECK(status.value() != fork_safety::disabled);
  }
}

TEST_CASE("each degree of fork safety has a name") {
  std::set<std::string> names;
  for (const fork_safety each :
       {fork_safety::disabled, fork_safety::enabled, fork_safety::unneeded})
    names.insert(to_string(each));
  CHECK(names == std::set<std::string>{"disabled", "enabled", "unneeded"});
}
