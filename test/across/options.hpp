// SPDX-License-Identifier: Apache-2.0
/// \file
/// The command line options with which one end is started.
#pragma once

#include <verbspp/device/gid.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/qp/parameters.hpp>

#include <arpa/inet.h>
#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace verbspp::across {

inline constexpr const char* help =
    "One end of a connection by an exchange. Both ends take turns in playing rounds, and check "
    "every byte.\n"
    "\n"
    "  HOST               the host on which the other end listens; without it, this end listens\n"
    "  --meets            both ends listen, and both connect to the other\n"
    "  --port NUMBER      4711 by default\n"
    "  --device NAME      rxe0 by default\n"
    "  --towards ADDRESS  uses the device by which the kernel reaches that IP address\n"
    "  --gid-index N      by default, the addresses of both ends determine it\n"
    "  --mtu BYTES        by default, both ends agree on it\n"
    "  --uc               uses UC instead of RC\n"
    "  --rounds N         10 by default\n"
    "  --bytes N          size of a message, 20000 by default\n"
    "  --seconds N        timeout of each wait, 20 by default\n"
    "  --connections N    reconnects after a failure, until N connections were made; 1 by "
    "default\n";

struct options {
  std::string host{};
  bool meets = false;
  // steady: this port is only the default for manual use; tests pass a port
  std::string port = "4711";
  std::string device = "rxe0";
  std::optional<gid> towards{};
  std::optional<verbspp::gid_index> gid_index{};
  std::optional<path_mtu> mtu{};
  bool by_uc = false;
  std::uint32_t rounds = 10;
  std::uint32_t bytes = 20000;
  std::chrono::seconds limit{20};
  unsigned connections = 1;

  [[nodiscard]] bool listens() const { return host.empty() || meets; }
};

/// Parses the arguments. Ends the program if they are invalid or ask for help.
class arguments {
 public:
  arguments(int argc, char** argv) : next_(argv + 1), end_(argv + argc) {}

  [[nodiscard]] options parse() {
    options given;
    while (next_ != end_) {
      const std::string_view argument = *next_++;
      if (argument == "--help") end_with(EXIT_SUCCESS);
      if (argument == "--meets")
        given.meets = true;
      else if (argument == "--uc")
        given.by_uc = true;
      else if (argument == "--port")
        given.port = value();
      else if (argument == "--device")
        given.device = value();
      else if (argument == "--towards")
        given.towards = address();
      else if (argument == "--gid-index")
        given.gid_index = gid_index::from(number()).value();
      else if (argument == "--mtu")
        given.mtu = path_mtu::from(number()).value();
      else if (argument == "--rounds")
        given.rounds = number();
      else if (argument == "--bytes")
        given.bytes = number();
      else if (argument == "--seconds")
        given.limit = std::chrono::seconds(number());
      else if (argument == "--connections")
        given.connections = number();
      else if (!argument.starts_with('-') && given.host.empty())
        given.host = argument;
      else
        end_with(EXIT_FAILURE);
    }
    return given;
  }

 private:
  [[noreturn]] static void end_with(int status) {
    std::fputs(help, status == EXIT_SUCCESS ? stdout : stderr);
    std::exit(status);
  }
  std::string_view value() {
    if (next_ == end_) end_with(EXIT_FAILURE);
    return *next_++;
  }
  gid address() {
    gid read{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}};
    const std::string text(value());
    if (::inet_pton(AF_INET, text.c_str(), &read.bytes[12]) != 1 &&
        ::inet_pton(AF_INET6, text.c_str(), read.bytes.data()) != 1)
      end_with(EXIT_FAILURE);
    return read;
  }
  std::uint32_t number() {
    const std::string_view text = value();
    std::uint32_t read = 0;
    const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (problem != std::errc() || rest != text.data() + text.size()) end_with(EXIT_FAILURE);
    return read;
  }

  char** next_;
  char** end_;
};

}  // namespace verbspp::across
