// SPDX-License-Identifier: Apache-2.0
/// \file
/// The soak as a program; `--help` says how.
#include "soak.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

using namespace verbspp::soak;

namespace {

constexpr const char* help =
    "Two channels do everything at random to each other, and check every byte.\n"
    "\n"
    "  --seed=N          where chance starts; another one each time by default. What threads do\n"
    "                    at the same time is chance, too: a seed gives the same mixture, not\n"
    "                    the same run\n"
    "  --operations=N    ends after that many requests; a million by default\n"
    "  --seconds=N       ends after that time at the latest\n"
    "  --device=NAME     soft0 by default\n"
    "  --clients=N       a server with a hub and N clients, at most 8, instead of two ends\n"
    "  --kills           the peer, or each client, is a process, which is killed at random and\n"
    "                    comes back\n"
    "  --faults          the device fails at random; needs softverbs\n"
    "  --board=FD        the peer is on another machine, which has memory in common with this "
    "one:\n"
    "                    the descriptor, of zeros at first. It is started with --peer=FD\n"
    "  --ack-timeout=N   code of the channels' ACK timeout, 14 by default, for devices that are "
    "slow\n"
    "  --patience=N      seconds that a request may take, and a third of what a step of the\n"
    "                    other end may take\n"
    "  --quiet           only the summary\n";

/// The number behind `name=`, if the argument is that.
template <class Number>
bool take_number(std::string_view argument, std::string_view name, Number& number) {
  if (!argument.starts_with(name)) return false;
  argument.remove_prefix(name.size());
  const auto [rest, problem] =
      std::from_chars(argument.data(), argument.data() + argument.size(), number);
  return problem == std::errc() && rest == argument.data() + argument.size();
}

}  // namespace

int main(int argc, char* argv[]) {
  options wanted;
  wanted.seed = std::random_device()();
  wanted.talks = true;
  int peer_of = -1;
  int client = -1;
  std::uint64_t seconds = 0;
  std::uint64_t patience = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (take_number(argument, "--seed=", wanted.seed) ||
        take_number(argument, "--operations=", wanted.operations) ||
        take_number(argument, "--clients=", wanted.clients) ||
        take_number(argument, "--board=", wanted.board) ||
        take_number(argument, "--ack-timeout=", wanted.ack_timeout) ||
        take_number(argument, "--client=", client) || take_number(argument, "--peer=", peer_of))
      continue;
    if (take_number(argument, "--seconds=", seconds)) {
      wanted.time = std::chrono::seconds(seconds);
    } else if (take_number(argument, "--patience=", patience)) {
      wanted.patience = std::chrono::seconds(patience);
    } else if (argument.starts_with("--device=")) {
      wanted.device = argument.substr(9);
    } else if (argument == "--kills") {
      wanted.kills = true;
    } else if (argument == "--faults") {
      wanted.faults = true;
    } else if (argument == "--quiet") {
      wanted.talks = false;
    } else {
      const bool is_question = argument == "--help" || argument == "-h";
      std::fputs(help, is_question ? stdout : stderr);
      return is_question ? EXIT_SUCCESS : EXIT_FAILURE;
    }
  }
  if (peer_of >= 0)
    return client >= 0 ? run_client(wanted, static_cast<unsigned>(client), peer_of)
                       : run_peer(wanted, peer_of);

  std::printf("seed %llu, device %s\n", static_cast<unsigned long long>(wanted.seed),
              wanted.device.c_str());
  std::fflush(stdout);
  const summary found = wanted.clients != 0 ? run_clients(wanted) : run(wanted);
  std::printf("%s%llu operations, seed %llu\n", found.text.c_str(),
              static_cast<unsigned long long>(found.operations),
              static_cast<unsigned long long>(wanted.seed));
  if (found.failure.empty()) {
    std::puts("every byte was where it should be, and every failure had a reason");
    return EXIT_SUCCESS;
  }
  std::printf("FAILED: %s\n", found.failure.c_str());
  return EXIT_FAILURE;
}
