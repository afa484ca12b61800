// SPDX-License-Identifier: Apache-2.0
/// \file
/// A libFuzzer target. Every configuration and every fault must be either accepted, or
/// refused with a reason. The first character selects what is tested.

#include "device/configuration.hpp"
#include "faults/failing_verbs.hpp"
#include "faults/fault_grammar.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

using namespace softverbs;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

bool is_possible(const device_description& device) {
  const device_limits usual;
  return device.port_count >= 1 && device.port_count <= max_ports && device.most.queue_pairs >= 1 &&
         device.most.queue_pairs <= usual.queue_pairs &&
         device.most.inline_data <= usual.inline_data &&
         device.most.outstanding_reads <= usual.outstanding_reads &&
         device.numa_node.value_or(0) < limits::numa_nodes;
}

void read_as_configuration(std::string_view text, link_layer usual) {
  configuration_problem problem;
  const auto read = read_configuration(text, usual, problem);
  if (!read) {
    const auto lines = std::count(text.begin(), text.end(), '\n') + 1;
    require(problem.text.size() > 10 && problem.line <= static_cast<std::size_t>(lines));
    return;
  }
  require(!read->devices.empty() && read->devices.size() <= max_devices && read->fingerprint != 0);
  require(std::all_of(read->devices.begin(), read->devices.end(), is_possible));
  require(read_configuration(text, usual, problem)->fingerprint == read->fingerprint);
}

void read_as_fault(std::string_view text, faults::device_names names) {
  const char* problem = nullptr;
  const auto read = faults::read_fault(faults::trimmed(text), names, problem);
  require(read.has_value() == (problem == nullptr));
  if (!read) return;
  require(read->first >= 1 && read->span >= 0 && read->what.longest >= read->what.span &&
          read->chance <= 1'000'000);
  require(read->when != faults::occasion::verb || read->verb < faults::verbs.size());
  // For devices other than soft ones, faults of packets and lost peers are not supported.
  const bool is_any = names == faults::device_names::any;
  require(!is_any || (read->when != faults::occasion::packet &&
                      read->what.kind != faults::effect_kind::peer_lost));
  require(is_any || read->what.device.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t length) {
  if (length == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, length - 1);
  switch (bytes[0]) {
    case 'e':
      read_as_configuration(text, link_layer::ethernet);
      break;
    case 'i':
      read_as_configuration(text, link_layer::infiniband);
      break;
    case 's':
      read_as_fault(text, faults::device_names::soft);
      break;
    default:
      read_as_fault(text, faults::device_names::any);
  }
  return 0;
}
