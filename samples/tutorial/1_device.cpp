// SPDX-License-Identifier: Apache-2.0
/// \file
/// Step 1 of docs/guide/tutorial.md: open a device, and register memory with it.

#include <verbspp/verbspp.hpp>

#include <iostream>

namespace {

using namespace verbspp;

result<void> run() {
  VERBSPP_TRY(devices, device_list::query());
  for (const device& each : devices) std::cout << "found " << each.name() << '\n';
  if (devices.empty())
    return error(error_kind::not_found, "find device", "preload libsoftverbs.so");

  VERBSPP_TRY(device, devices[0].open());
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  VERBSPP_TRY(buffer, registered_buffer<>::allocate(domain, 4096));
  std::cout << "registered " << buffer << '\n';
  return success();
}

}  // namespace

int main() {
  const auto outcome = run();
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
