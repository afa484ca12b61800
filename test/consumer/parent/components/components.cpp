// SPDX-License-Identifier: Apache-2.0

// Uses every library of verbspp.

#include <verbspp/cm.hpp>
#include <verbspp/ranks.hpp>

#include <array>
#include <iostream>

int main() {
  const auto address = verbspp::cm_address::from("127.0.0.1", 7471);
  const std::array hosts{verbspp::host_entry{.name = "localhost", .ranks = 2}};
  const auto list = verbspp::host_list::from(hosts, 7471);
  if (!address || !list) return 1;
  std::cout << address.value().port() << ' ' << list.value().size() << '\n';
}
