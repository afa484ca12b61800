// SPDX-License-Identifier: Apache-2.0
/// \file
/// Prints the tables of docs/scale.md, from the model that test/scale compares with measurements:
///
///     scale each | all | receives | limits | transports

#include "../test/scale/model.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace {

using namespace verbspp::scale;

constexpr std::uint64_t peers = 10000;
constexpr std::uint64_t processes = 32;  ///< on each node
constexpr std::uint64_t message_size = 4096;
constexpr std::uint64_t posted_for_all = 512;

struct kind {
  const char* name;
  channel_size size;
};
constexpr std::array kinds{
    kind{"built by default", {}},
    kind{"small", {.sends = 4, .receives = 4, .send_elements = 1, .receive_elements = 1}},
    kind{"small, with a pool",
         {.sends = 4, .receives = 4, .send_elements = 1, .receive_elements = 1, .has_pool = true}},
};

/// Returns the number with commas, for example 1,234,567.
std::string with_commas(std::uint64_t number) {
  const std::string digits = std::to_string(number);
  std::string written;
  for (std::size_t at = 0; at < digits.size(); ++at) {
    if (at > 0 && (digits.size() - at) % 3 == 0) written += ',';
    written += digits[at];
  }
  return written;
}

std::string in_units(std::uint64_t bytes, std::uint64_t unit) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1)
       << static_cast<double>(bytes) / static_cast<double>(unit);
  return text.str();
}

/// Prints how much memory `count` peers need, and where.
void print_memory(std::uint64_t count, std::uint64_t unit) {
  std::cout << "| channels | library | mlx5: queue pairs | completion queue | NIC: contexts "
               "| soft0: queue pairs | completion queue |\n"
               "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  for (const kind& each : kinds) {
    const std::uint64_t completions = completions_of(each.size, count);
    std::cout << "| " << each.name;
    for (const std::uint64_t bytes :
         {count * of_library(each.size), count * of_mlx5_queue_pair(each.size),
          count == 1 ? completions * 64 : of_mlx5_completions(completions), count * mlx5_context,
          count * of_softverbs_queue_pair(each.size),
          count == 1 ? completions * 104 : of_softverbs_completions(completions)})
      std::cout << " | " << in_units(bytes, unit);
    std::cout << " |\n";
  }
}

void print_receives() {
  constexpr std::uint64_t of_each = 16;
  std::cout << "| receives | of 10 peers | of 100 | of 1,000 | of 10,000 |\n"
               "| --- | ---: | ---: | ---: | ---: |\n| 16 of each peer, MiB";
  for (std::uint64_t count = 10; count <= peers; count *= 10)
    std::cout << " | " << in_units(count * of_each * message_size, 1 << 20);
  std::cout << " |\n| 512 of all, from a pool, MiB";
  for (std::uint64_t count = 10; count <= peers; count *= 10)
    std::cout << " | " << in_units(posted_for_all * message_size, 1 << 20);
  std::cout << " |\n";
}

void print_limits() {
  struct limit {
    std::string what;
    std::uint64_t peers;
  };
  const channel_size& usual = kinds[0].size;
  const channel_size& smallest = kinds[2].size;
  constexpr channel_size deep{.sends = 1024, .receives = 1024};
  std::vector<limit> limits{
      {"locked memory of 8 MiB; built by default, with receives of 4 KiB of their own",
       usual_locked_memory / locked_of(usual, message_size)},
      {"locked memory of 8 MiB; small, with a pool of 512 receives of 4 KiB",
       (usual_locked_memory - posted_for_all * message_size) / locked_of(smallest, message_size)},
      {"descriptors of rank 0's meeting point, of which 1,024 are usual", usual_descriptors},
      {"a completion queue of 4,194,303; 1,024 sends and 1,024 receives each",
       connect_ib_completions / completions_of(deep, 1)},
      {"a completion queue of 4,194,303; built by default",
       connect_ib_completions / completions_of(usual, 1)},
      {"a completion queue of 8,388,607; built by default",
       broadcom_completions / completions_of(usual, 1)},
      {"the NIC's cache of contexts: half of the rate", connections_of_half_the_rate},
      {"131,073 queue pairs of a NIC, for 32 processes", broadcom_queue_pairs / processes},
      {"262,144 queue pairs of a NIC, for 32 processes", connect_ib_queue_pairs / processes},
      {"channels of a group, and ranks of a world", most_channels},
  };
  std::ranges::sort(limits, {}, [](const limit& each) { return std::tie(each.peers, each.what); });
  std::cout << "| limit | number of peers |\n| --- | ---: |\n";
  for (const limit& each : limits)
    std::cout << "| " << each.what << " | " << with_commas(each.peers) << " |\n";
}

void print_transports() {
  constexpr std::uint64_t nodes = (peers + processes - 1) / processes;
  std::cout << "| to 10,000 peers, 32 processes a node | queue pairs of a process | of a node "
               "| contexts of a node, MiB | memory of a peer in a process, bytes |\n"
               "| --- | ---: | ---: | ---: | ---: |\n";
  const auto print = [&](const char* name, std::uint64_t of_process, std::uint64_t of_node,
                         std::uint64_t of_peer) {
    std::cout << "| " << name << " | " << with_commas(of_process) << " | " << with_commas(of_node)
              << " | " << in_units(of_node * mlx5_context, 1 << 20) << " | " << with_commas(of_peer)
              << " |\n";
  };
  const channel_size& smallest = kinds[2].size;
  const std::uint64_t of_channel = of_library(smallest) + of_mlx5_queue_pair(smallest);
  print("RC, all connected", peers, peers * processes, of_channel);
  print("RC, lazily, 100 peers that are used", 100, 100 * processes, of_channel);
  // Each process has one queue pair to each node. For each process that connects to a node, the
  // processes of that node share one queue pair.
  print("XRC, one to each node", nodes, nodes * processes + peers,
        (nodes * processes + peers) * of_mlx5_queue_pair(smallest) / processes / peers);
  print("UD", 1, processes, mlx5_address_handle);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what == "each")
    print_memory(1, 1024);
  else if (what == "all")
    print_memory(peers, 1 << 20);
  else if (what == "receives")
    print_receives();
  else if (what == "limits")
    print_limits();
  else if (what == "transports")
    print_transports();
  else
    return 2;
  return 0;
}
