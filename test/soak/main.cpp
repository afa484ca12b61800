// SPDX-License-Identifier: Apache-2.0
/// \file
/// The soak as a program. `--help` describes its options.
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
    "Two channels send each other random requests, and check every byte.\n"
    "\n"
    "  --seed=N          the random seed; by default, each run uses another one. The timing of "
    "threads\n"
    "                    is random, too, so a seed reproduces the mixture of requests, but not "
    "the\n"
    "                    whole run\n"
    "  --operations=N    ends after this many requests; a million by default\n"
    "  --seconds=N       ends after this time at the latest\n"
    "  --device=NAME     soft0 by default\n"
    "  --clients=N       a server with a hub and N clients, at most 8, instead of two ends\n"
    "  --kills           the peer, or each client, is a process, which is killed at random and\n"
    "                    restarted\n"
    "  --faults          the device fails at random; needs softverbs\n"
    "  --board=FD        the peer runs on another machine, which shares memory with this one. FD "
    "is\n"
    "                    the descriptor of this memory, which must contain zeros at first. Start\n"
    "                    the peer with --peer=FD\n"
    "  --ack-timeout=N   the code of the channels' ACK timeout; 14 by default, more for slow "
    "devices\n"
    "  --patience=N      the limit for a request in seconds; the limit for a step of the other "
    "end\n"
    "                    is three times as long\n"
    "  --quiet           prints only the summary\n";

/// If the argument starts with `name`, parses the number that follows. \returns true if there is
/// such a number
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
