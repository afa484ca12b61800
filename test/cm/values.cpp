// SPDX-License-Identifier: Apache-2.0
/// \file
/// Parts of the connection manager that need no device: addresses, private data, the texts of
/// events, states and rejection reasons, and the error if the kernel has no connection manager.

#include "../catch.hpp"
#include <verbspp/cm.hpp>

#include <arpa/inet.h>

#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

using namespace verbspp;

namespace {

std::string printed(const cm_address& address) {
  std::ostringstream out;
  out << address;
  return out.str();
}

}  // namespace

TEST_CASE("numeric addresses can be parsed and printed") {
  const cm_address ipv4 = cm_address::from("192.0.2.1", 7174).value();
  CHECK(printed(ipv4) == "192.0.2.1:7174");
  CHECK(ipv4.port() == 7174);
  CHECK(ipv4.native()->sa_family == AF_INET);
  const cm_address ipv6 = cm_address::from("2001:db8::1", 1).value();
  CHECK(printed(ipv6) == "[2001:db8::1]:1");
  CHECK(ipv6.native()->sa_family == AF_INET6);
  CHECK(printed(cm_address::from("fe80::1%lo", 65535).value()) == "[fe80::1%1]:65535");
  CHECK(printed(cm_address::any(2)) == "[::]:2");
  CHECK(printed(cm_address()) == "no address");
}

TEST_CASE("invalid addresses are refused") {
  for (const char* const text : {"", "localhost", "192.0.2.256", "1.2.3.4:5", "2001:db8::g",
                                 "fe80::1%nosuchinterface", "[::1]"}) {
    INFO(text);
    CHECK(cm_address::from(text, 1).error() == error_kind::invalid_input);
  }
  CHECK(cm_address::from(std::string(5000, '1'), 1).error() == error_kind::invalid_input);
  CHECK(cm_address::from({"192.0.2.1\0x", 11}, 1).error() == error_kind::invalid_input);
  CHECK(cm_address::from_native(nullptr).error() == error_kind::invalid_input);
  sockaddr other{};
  other.sa_family = AF_UNIX;
  CHECK(cm_address::from_native(&other).error() == error_kind::invalid_input);
}

TEST_CASE("addresses compare by family, address and port") {
  const cm_address one = cm_address::from("192.0.2.1", 1).value();
  CHECK(one == cm_address::from("192.0.2.1", 1).value());
  CHECK(one.with_port(2) != one);
  CHECK(one.with_port(2).with_port(1) == one);
  CHECK(one != cm_address::from("192.0.2.2", 1).value());
  CHECK(one != cm_address::from("2001:db8::1", 1).value());
  CHECK(cm_address::from("2001:db8::1", 1).value() != cm_address::from("2001:db8::2", 1).value());
  CHECK(cm_address() == cm_address());
  CHECK(cm_address().with_port(5).is_empty());
}

TEST_CASE("private data can be created from values and read as values") {
  const cm_request_data number = std::uint32_t{0x01020304};
  CHECK(number.bytes().size() == 4);
  CHECK(number.as<std::uint32_t>().value() == 0x01020304);
  CHECK(number.as<std::uint16_t>().has_value());
  const error too_short = number.as<std::uint64_t>().error();
  CHECK(too_short == error_kind::mismatch);
  CHECK(cm_request_data().is_empty());
  CHECK(cm_request_data().as<char>().error() == error_kind::mismatch);
  const cm_request_data largest = std::array<char, 56>{'a'};
  CHECK(largest.bytes().size() == 56);
}

TEST_CASE("private data whose length is known only at run time is refused if it is too long") {
  const std::vector<std::byte> bytes(57, std::byte{1});
  const error e = cm_request_data::from(bytes).error();
  CHECK(e == error_kind::invalid_input);
  CHECK_THAT(e.message(), Catch::Contains("57") && Catch::Contains("56"));
  CHECK(cm_request_data::from(std::span(bytes).first(56)).value().bytes().size() == 56);
  CHECK(cm_request_data::from({}).value().is_empty());
  CHECK(cm_acceptance_data::from(bytes).has_value());
}

TEST_CASE("events and states and rejection reasons have texts") {
  for (std::uint32_t i = 0; i <= static_cast<std::uint32_t>(cm_event::time_wait_exit); ++i)
    CHECK(std::string(to_string(static_cast<cm_event>(i))) != "unknown event");
  CHECK(std::string(to_string(static_cast<cm_event>(99))) == "unknown event");
  for (int i = 0; i <= static_cast<int>(cm_state::removed); ++i)
    CHECK(std::string(to_string(static_cast<cm_state>(i))) != "unknown state");
  CHECK(std::string(to_string(cm_rejection_reason::no_listener)) ==
        "no server listens for connections at this address and port: start the server, or check "
        "the address and port");
  CHECK(std::string(to_string(static_cast<cm_rejection_reason>(12))) != "");
}

TEST_CASE("if the kernel has no connection manager, the error names this cause") {
  const auto listener = cm_listener::open(cm_address::any(0));
  const auto route =
      cm_route::resolve(cm_address::from("192.0.2.1", 1).value(), std::chrono::seconds(10));
  if (listener.has_value()) return;
  CHECK(listener.error() == error_kind::not_supported);
  CHECK(route.error() == error_kind::not_supported);
  CHECK_THAT(listener.error().message(), Catch::Contains("rdma_ucm"));
}
