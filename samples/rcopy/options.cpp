// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <getopt.h>

#include <charconv>
#include <iostream>
#include <string_view>

namespace rcopy {

const char* const help_text =
    R"(Usage: 11_rcopy [OPTION...] TARGET         the server: waits for one file
       11_rcopy [OPTION...] SOURCE HOST    the client: sends it

Copies a file by RDMA writes. If either end dies, start it again: the other one waits for it, and
the copy goes on where it stopped. Until it is complete and right, it is TARGET.part.

  -p, --port=PORT        TCP port for the exchange of the endpoints (18516)
  -d, --device=NAME      RDMA device (the first one)
  -k, --in-flight=COUNT  writes in flight; the server says (16)
  -c, --chunk=BYTES      bytes per write; the server says (262144)
  -l, --limit=SECONDS    give up if it is not done by then, whatever happens (3600)
  -r, --rate=MB          MB per second at most; the client says (as many as there can be)
  -h, --help             show this

Exit code: 0 done, 1 failed, 2 wrong options.
)";

namespace {

constexpr const char* short_options = "p:d:k:c:l:r:h";
constexpr option long_options[] = {
    {"port", required_argument, nullptr, 'p'},
    {"device", required_argument, nullptr, 'd'},
    {"in-flight", required_argument, nullptr, 'k'},
    {"chunk", required_argument, nullptr, 'c'},
    {"limit", required_argument, nullptr, 'l'},
    {"rate", required_argument, nullptr, 'r'},
    {"help", no_argument, nullptr, 'h'},
    {},
};

/// Takes the option's argument as a number of that type, whose `from` knows what is in range.
template <class Number>
bool read_number(Number& into) {
  const std::string_view text = optarg;
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) {
    std::cerr << "11_rcopy: \"" << text << "\" is no number; see --help\n";
    return false;
  }
  const auto number = Number::from(value);
  if (number.has_value())
    into = number.value();
  else
    std::cerr << "11_rcopy: " << number.error() << "; see --help\n";
  return number.has_value();
}

bool take(options& into, int option) {
  switch (option) {
    case 'p':
      return read_number(into.tcp_port);
    case 'd':
      into.device = optarg;
      return true;
    case 'k':
      return read_number(into.in_flight);
    case 'c':
      return read_number(into.chunk);
    case 'l':
      return read_number(into.limit);
    case 'r':
      return read_number(into.rate.emplace());
    case 'h':
      return into.help = true;
    default:
      return false;  // getopt_long has said why
  }
}

}  // namespace

std::optional<options> parse_options(int argc, char** argv) {
  options given;
  for (int next = 0; next != -1;) {
    next = getopt_long(argc, argv, short_options, long_options, nullptr);
    if (next != -1 && !take(given, next)) return std::nullopt;
  }
  const int names = argc - optind;
  if (given.help) return given;
  if (names < 1 || names > 2) {
    std::cerr << "11_rcopy: give a file, and to the client the server's host; see --help\n";
    return std::nullopt;
  }
  given.file = argv[optind];
  if (names == 2) given.host = argv[optind + 1];
  return given;
}

}  // namespace rcopy
