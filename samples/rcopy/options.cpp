// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "common/option_reading.hpp"

#include <iostream>
#include <string_view>

namespace rcopy {

const char* const help_text =
    R"(Usage: 11_rcopy [OPTION...] TARGET         the server: waits for one file
       11_rcopy [OPTION...] SOURCE HOST    the client: sends it

Copies a file by RDMA writes. If either end dies, start it again: the other end waits for it, and
the copy continues where it stopped. Until it is complete and correct, it is in TARGET.part.

  -p, --port=PORT        TCP port for the exchange of the endpoints (18516)
  -d, --device=NAME      RDMA device (the first one)
  -k, --in-flight=COUNT  writes in flight, the same at both ends (16)
  -c, --chunk=BYTES      bytes per write, the same at both ends (262144)
  -l, --limit=SECONDS    abort the copy if it takes longer (3600)
  -r, --rate=MB          maximum MB per second; client only (unlimited)
  -h, --help             show this help

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

template <class Number>
bool read(Number& into) {
  return common::read_number("11_rcopy", into);
}

bool take(options& into, int option) {
  switch (option) {
    case 'p':
      return read(into.tcp_port);
    case 'd':
      into.device = optarg;
      return true;
    case 'k':
      return read(into.in_flight);
    case 'c':
      return read(into.chunk);
    case 'l':
      return read(into.limit);
    case 'r':
      return read(into.rate);
    case 'h':
      return into.help = true;
    default:
      return false;  // getopt_long has printed the reason
  }
}

}  // namespace

std::optional<options> parse_options(int argc, char** argv) {
  options given;
  if (!common::read_options(argc, argv, short_options, long_options,
                            [&](int option) { return take(given, option); }))
    return std::nullopt;
  const int names = argc - optind;
  if (given.help) return given;
  if (names < 1 || names > 2) {
    std::cerr << "11_rcopy: give a file and, for the client, the server's host; see --help\n";
    return std::nullopt;
  }
  given.file = argv[optind];
  if (names == 2) given.host = argv[optind + 1];
  return given;
}

}  // namespace rcopy
