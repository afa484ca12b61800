// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lists the RDMA devices of this machine, with their NUMA nodes, ports and addresses, and reports
/// whether registered memory survives a fork.

#include <verbspp/verbspp.hpp>

#include <iostream>

namespace {

using namespace verbspp;

result<void> print_port(const context& opened, port_number number) {
  VERBSPP_TRY(port, opened.query_port(number));
  std::cout << "  " << port << '\n';
  VERBSPP_TRY(gids, opened.query_gid_table(number));
  for (const gid_entry& entry : gids) std::cout << "    " << entry << '\n';
  return success();
}

result<void> print_device(const device& found) {
  std::cout << found.name() << ", node GUID " << found.guid();
  VERBSPP_TRY(near, numa_node_of(found));
  if (near) std::cout << ", near NUMA node " << near->value();
  std::cout << '\n';
  VERBSPP_TRY(opened, found.open());
  VERBSPP_TRY(limits, opened.query_device());
  for (unsigned number = 1; number <= limits.phys_port_cnt; ++number) {
    VERBSPP_TRY(port, port_number::from(number));
    VERBSPP_TRYV(print_port(opened, port));
  }
  return success();
}

result<void> list_devices() {
  VERBSPP_TRY(devices, device_list::query());
  if (devices.empty())
    return error(error_kind::not_found, "list devices",
                 "libibverbs reports no RDMA device: load the driver, create a device on a network "
                 "interface with `rdma link add`, or preload libsoftverbs.so");
  for (const device& each : devices) VERBSPP_TRYV(print_device(each));
  // If fork safety is disabled, a program that forks has to call initialize_fork() before it
  // registers memory. fork_status() returns an error if verbspp was built with a libibverbs that is
  // too old to report the status.
  if (const auto safety = fork_status(); safety.has_value())
    std::cout << "fork safety: " << to_string(safety.assume_value()) << '\n';
  return success();
}

}  // namespace

int main() {
  const auto outcome = list_devices();
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
