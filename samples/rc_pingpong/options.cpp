// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "common/option_reading.hpp"

#include <algorithm>
#include <iostream>

namespace rc_pingpong {

const char* const help_text =
    R"(Usage: 02_rc_pingpong [OPTION...]         the server: waits for a client
       02_rc_pingpong [OPTION...] HOST    the client

Sends a message back and forth over a reliable connection, and checks the data.
Give both ends the same size, iterations and MTU.

  -p, --port=PORT        TCP port for the exchange of the endpoints (18515)
  -d, --device=NAME      RDMA device (the first one); also --ib-dev
  -i, --ib-port=PORT     port of the device (the first active one)
  -g, --gid-index=INDEX  GID of the port (the best one); also --gid-idx
  -s, --size=BYTES       bytes per message (4096)
  -m, --mtu=BYTES        path MTU: 256 to 4096 (the largest that both ports support;
                         1024 with --ibv-exchange)
  -r, --rx-depth=COUNT   receives to keep posted (500)
  -n, --iters=COUNT      round trips (1000)
  -l, --sl=LEVEL         service level (0)
  -c, --check            check every byte, not only the start of each 4 KiB; also --chk
      --timeout=CODE     ACK timeout, 4.096 us x 2^CODE (14)
      --retries=COUNT    retransmissions without an ACK (7)
      --ibv-exchange     exchange endpoints like ibv_rc_pingpong, which may be the other end
  -h, --help             show this help

A peer that is silent for 4 x ACK timeout x (retries + 1), or for a second if that is more, is
considered dead. Exit code: 0 done, 1 failed, 2 wrong options.
)";

namespace {

enum long_only { timeout = 256, retries, ibv_exchange };

constexpr const char* short_options = "p:d:i:g:s:m:r:n:l:ch";
constexpr option long_options[] = {
    {"port", required_argument, nullptr, 'p'},
    {"device", required_argument, nullptr, 'd'},
    {"ib-dev", required_argument, nullptr, 'd'},
    {"ib-port", required_argument, nullptr, 'i'},
    {"gid-index", required_argument, nullptr, 'g'},
    {"gid-idx", required_argument, nullptr, 'g'},
    {"size", required_argument, nullptr, 's'},
    {"mtu", required_argument, nullptr, 'm'},
    {"rx-depth", required_argument, nullptr, 'r'},
    {"iters", required_argument, nullptr, 'n'},
    {"sl", required_argument, nullptr, 'l'},
    {"check", no_argument, nullptr, 'c'},
    {"chk", no_argument, nullptr, 'c'},
    {"timeout", required_argument, nullptr, timeout},
    {"retries", required_argument, nullptr, retries},
    {"ibv-exchange", no_argument, nullptr, ibv_exchange},
    {"help", no_argument, nullptr, 'h'},
    {},
};

template <class Number>
bool read(Number& into) {
  return common::read_number("02_rc_pingpong", into);
}

bool take_option(options& into, int option) {
  switch (option) {
    case 'p':
      return read(into.tcp_port);
    case 'd':
      into.device = optarg;
      return true;
    case 'i':
      return read(into.port);
    case 'g':
      return read(into.gid_index);
    case 's':
      return read(into.size);
    case 'm':
      return read(into.mtu);
    case 'r':
      return read(into.receive_depth);
    case 'n':
      return read(into.iterations);
    case 'l':
      return read(into.service_level);
    case 'c':
      return into.check = true;
    case timeout:
      return read(into.ack_timeout);
    case retries:
      return read(into.retries);
    case ibv_exchange:
      return into.ibv_exchange = true;
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
                            [&](int option) { return take_option(given, option); }))
    return std::nullopt;
  if (argc - optind > 1) {
    std::cerr << "02_rc_pingpong: at most one host is allowed, but there are more arguments; see "
                 "--help\n";
    return std::nullopt;
  }
  if (optind < argc) given.host = argv[optind];
  // ibv_rc_pingpong can't send its MTU, so both ends need the same default.
  if (given.ibv_exchange && !given.mtu) given.mtu = verbspp::path_mtu(1024);
  return given;
}

std::chrono::nanoseconds options::patience() const noexcept {
  const auto longest_retry = ack_timeout.duration() * 4 * (retries.value() + 1);
  return std::max<std::chrono::nanoseconds>(longest_retry, std::chrono::seconds(1));
}

}  // namespace rc_pingpong
