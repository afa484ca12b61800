// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace verbspp::test {

/// The number of RNR NAKs that port 1 of the device has sent, plus the number that it has received;
/// empty if the device does not count them. softverbs counts only those of this process.
[[nodiscard]] inline std::optional<std::uint64_t> rnr_naks(const std::string& device) {
  std::uint64_t all = 0;
  for (const char* name : {"rcvd_rnr_err", "send_rnr_err"}) {
    std::ifstream file("/sys/class/infiniband/" + device + "/ports/1/hw_counters/" + name);
    std::uint64_t value = 0;
    if (!(file >> value)) return std::nullopt;
    all += value;
  }
  return all;
}

}  // namespace verbspp::test
