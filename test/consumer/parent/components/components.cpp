// SPDX-License-Identifier: Apache-2.0

// Uses every library of verbspp.

#include <verbspp/calls.hpp>
#include <verbspp/cm.hpp>
#include <verbspp/ranks.hpp>

#include <array>
#include <cstdint>
#include <iostream>

namespace {

struct method {
  static constexpr std::uint16_t number = 1;
  static constexpr const char* name = "method";
  using request = int;
  using answer = int;
};

}  // namespace

int main() {
  const verbspp::error failure(verbspp::error_kind::busy, "method", "not a refusal");
  if (verbspp::is_refusal(failure)) return 1;
  static_assert(verbspp::Method<method>);
  const auto address = verbspp::cm_address::from("127.0.0.1", 7471);
  const std::array hosts{verbspp::host_entry{.name = "localhost", .ranks = 2}};
  const auto list = verbspp::host_list::from(hosts, 7471);
  if (!address || !list) return 1;
  std::cout << address.value().port() << ' ' << list.value().size() << '\n';
}
