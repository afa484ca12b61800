// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include "../held_port.hpp"
#include "text.hpp"
#include <verbspp/exchange/tcp.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <semaphore>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace verbspp;
using verbspp::test::held_port;
using namespace std::chrono_literals;
using verbspp::test::contains;

namespace {

// Controls the name lookups of this program.
std::atomic<bool> lookups_hang{false};
std::atomic<bool> lookups_lack_memory{false};
std::counting_semaphore<64> go_on{0};
std::atomic<int> hanging{0};

/// While an object of this class exists, one name resolves to the given numeric addresses, in the
/// given order.
class addresses_of_name {
 public:
  static constexpr std::string_view name = "several.addresses";

  explicit addresses_of_name(std::vector<const char*> addresses) {
    of_the_name = std::move(addresses);
  }
  ~addresses_of_name() { of_the_name.clear(); }
  addresses_of_name(const addresses_of_name&) = delete;
  addresses_of_name& operator=(const addresses_of_name&) = delete;

  /// The numeric addresses. The thread that performs the lookup reads them while the test waits.
  static inline std::vector<const char*> of_the_name;
};

}  // namespace

/// Replaces the function of the C library. While `lookups_hang` is true, simulates a name server
/// that does not answer. While `lookups_lack_memory` is true, all lookups fail. Otherwise resolves
/// `addresses_of_name::name`; other names are resolved as usual.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static auto* const real =
      reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (lookups_lack_memory) return EAI_MEMORY;
  if (lookups_hang && (hints->ai_flags & AI_NUMERICHOST) == 0) {
    ++hanging;
    go_on.acquire();
    --hanging;
    return EAI_AGAIN;
  }
  if (node != addresses_of_name::name) return real(node, service, hints, found);
  if ((hints->ai_flags & AI_NUMERICHOST) != 0) return EAI_NONAME;
  addrinfo** end = found;
  for (const char* each : addresses_of_name::of_the_name) {
    if (const int failed = real(each, service, hints, end); failed != 0) return failed;
    while (*end != nullptr) end = &(*end)->ai_next;
  }
  return 0;
}

namespace {

std::string host_that_was_reached(const tcp_socket& socket) {
  return to_string(socket.peer_address().value());
}

/// Fills a listener's queue, so that it drops later connection requests.
std::vector<tcp_socket> fill(const tcp_listener& listener, const char* address) {
  REQUIRE(::listen(listener.descriptor(), 0) == 0);
  std::vector<tcp_socket> waiting;
  for (int i = 0; i < 16; ++i) {
    auto client = tcp_socket::connect(address, std::to_string(listener.port()), 50ms);
    if (client.has_error()) return waiting;
    waiting.push_back(std::move(client).value());
  }
  FAIL("the listener's queue does not fill up");
  return waiting;
}

}  // namespace

TEST_CASE("TCP connects by address and by name") {
  const auto listener = tcp_listener::open("0").value();
  const std::string port = std::to_string(listener.port());
  REQUIRE(listener.port() != 0);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    CAPTURE(host);
    const auto client = tcp_socket::connect(host, port, 10s);
    REQUIRE(client.has_value());
    const auto server = listener.accept(10s).value();
    REQUIRE(::send(client.value().descriptor(), "x", 1, 0) == 1);
    CHECK((::fcntl(server.descriptor(), F_GETFL) & O_NONBLOCK) != 0);
    CHECK((::fcntl(server.descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(!listener.try_accept().value());
}

TEST_CASE("the error about a refused connection contains the address and the cause") {
  const held_port held;
  const std::string port = held.text();
  auto listener = tcp_listener::open(port, "127.0.0.1").value();
  CHECK(listener.port() == held.number());
  listener.close();
  CHECK(listener.port() == 0);
  const auto refused = tcp_socket::connect("127.0.0.1", port, 10s).error();
  CHECK(refused == error_kind::not_connected);
  CHECK(refused == std::errc::connection_refused);
  CHECK(contains(refused.message(), "127.0.0.1:" + port + ": no program listens there"));
}

TEST_CASE("an invalid host or port is refused") {
  for (const char* port : {"", "0", "65536", "x", "80x", "-1"}) {
    CAPTURE(port);
    CHECK(tcp_socket::connect("127.0.0.1", port, 1s).error() == error_kind::invalid_input);
  }
  // steady: this host name is refused before a socket is opened
  CHECK(tcp_socket::connect("", "80", 1s).error() == error_kind::invalid_input);
  // steady: this host name is refused before a socket is opened
  CHECK(tcp_socket::connect(std::string(256, 'x'), "80", 1s).error() == error_kind::invalid_input);
  // steady: this host name is refused before a socket is opened
  CHECK(tcp_socket::connect(std::string_view("a\0b", 3), "80", 1s).error() ==
        error_kind::invalid_input);
  CHECK(tcp_listener::open("x").error() == error_kind::invalid_input);
  CHECK(tcp_listener::open("0", "nowhere").error() == error_kind::invalid_input);
}

TEST_CASE("a lack of memory is not mistaken for an invalid address") {
  lookups_lack_memory = true;
  // steady: the lookup of this address fails, so nothing connects to the fixed port
  const auto connected = tcp_socket::connect("127.0.0.1", "80", 1s);
  const auto at_address = tcp_listener::open("0", "127.0.0.1");
  const auto at_all_addresses = tcp_listener::open("0");
  lookups_lack_memory = false;
  CHECK(connected.error() == std::errc::not_enough_memory);
  REQUIRE(at_address.has_error());
  CHECK(at_address.error() == error_kind::resource_exhausted);
  CHECK(at_address.error() == std::errc::not_enough_memory);
  REQUIRE(at_all_addresses.has_error());
  CHECK(at_all_addresses.error() == std::errc::not_enough_memory);
}

TEST_CASE("a port in use is refused") {
  const auto listener = tcp_listener::open("0").value();
  const std::string port = std::to_string(listener.port());
  const auto taken = tcp_listener::open(port).error();
  CHECK(taken == error_kind::busy);
  CHECK(taken == std::errc::address_in_use);
  CHECK(taken.native_errno() == EADDRINUSE);
  CHECK(contains(taken.message(), ":" + port));
  const auto at_address = tcp_listener::open(port, "127.0.0.1").error();
  CHECK(contains(at_address.message(), "127.0.0.1:" + port));
}

TEST_CASE("a listener waits until its limit expires") {
  const auto listener = tcp_listener::open("0").value();
  CHECK(listener.accept(1ms).error() == error_kind::timed_out);
  std::stop_source stop;
  stop.request_stop();
  CHECK(listener.accept(stop.get_token()).error() == error_kind::cancelled);
}

TEST_CASE("connecting to a host that does not answer times out") {
  const auto silent = tcp_listener::open("0", "127.0.0.1").value();
  const auto waiting = fill(silent, "127.0.0.1");
  const std::string port = std::to_string(silent.port());
  const auto lost = tcp_socket::connect("127.0.0.1", port, 50ms).error();
  CHECK(lost == error_kind::timed_out);
  CHECK(contains(lost.message(), "this address has not answered"));
}

TEST_CASE("a name server that does not answer delays no other call") {
  lookups_hang = true;
  for (int i = 0; i < 16; ++i)
    // steady: this name is never resolved, so nothing connects to the fixed port
    CHECK(tcp_socket::connect("some.name", "80", 1ms).error() == error_kind::timed_out);
  // The number of pending lookups is limited, but addresses need no lookup. steady: this name is
  // never resolved, so nothing connects to the fixed port
  CHECK(tcp_socket::connect("some.name", "80", 1ms).error() == error_kind::resource_exhausted);
  const held_port port;
  CHECK(tcp_socket::connect("127.0.0.1", port.text(), 10s).error() == error_kind::not_connected);
  lookups_hang = false;
  go_on.release(16);
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto late = tcp_socket::connect("localhost", port.text(), 10s).error();
    if (late == error_kind::not_connected) return;
    CHECK(late == error_kind::resource_exhausted);
  }
  FAIL("lookups that have finished still count");
}

TEST_CASE("the next address of a name is tried if no server listens at the first") {
  const held_port held;
  const std::string port = held.text();
  const auto listener = tcp_listener::open(port, "127.0.0.1").value();
  const auto addresses =
      GENERATE(std::vector<const char*>{"127.0.0.2", "127.0.0.1"},
               std::vector<const char*>{"::1", "127.0.0.1"},
               std::vector<const char*>{"127.0.0.3", "::1", "127.0.0.2", "127.0.0.1", "127.0.0.4"});
  const addresses_of_name known(addresses);
  const auto client = tcp_socket::connect(addresses_of_name::name, port, 60s);
  REQUIRE(client.has_value());
  CHECK(host_that_was_reached(client.value()) == "::ffff:127.0.0.1");
  CHECK(listener.accept(60s).has_value());
}

TEST_CASE("a name's first address with a listener is used") {
  const held_port port;
  const auto first = tcp_listener::open(port.text(), "127.0.0.2").value();
  const auto second = tcp_listener::open(port.text(), "127.0.0.1").value();
  const addresses_of_name known({"127.0.0.3", "127.0.0.2", "127.0.0.1"});
  const auto client = tcp_socket::connect(addresses_of_name::name, port.text(), 60s);
  REQUIRE(client.has_value());
  CHECK(host_that_was_reached(client.value()) == "::ffff:127.0.0.2");
  CHECK(!second.try_accept().value());
}

TEST_CASE("a name's first address gets only its share of the time if it does not answer") {
  const held_port port;
  const auto silent = tcp_listener::open(port.text(), "127.0.0.2").value();
  const auto listener = tcp_listener::open(port.text(), "127.0.0.1").value();
  const auto waiting = fill(silent, "127.0.0.2");
  // With sixteen addresses, the limit of 32 seconds leaves about two seconds for each of them. That
  // is enough for the second address even on a busy machine.
  std::vector<const char*> addresses(16, "127.0.0.1");
  addresses.front() = "127.0.0.2";
  const addresses_of_name known(addresses);
  const auto client = tcp_socket::connect(addresses_of_name::name, port.text(), 32s);
  REQUIRE(client.has_value());
  CHECK(host_that_was_reached(client.value()) == "::ffff:127.0.0.1");
}

TEST_CASE("if no address of a name has a listener, the error reports the result for each address") {
  const held_port port;
  const addresses_of_name known({"127.0.0.2", "::1", "127.0.0.1"});
  const auto lost = tcp_socket::connect(addresses_of_name::name, port.text(), 60s).error();
  CHECK(lost == error_kind::not_connected);
  const std::string at_end = ":" + port.text() + ": ";
  const std::string refused = "no program listens there, or a firewall rejects connections";
  CHECK(contains(lost.message(), "127.0.0.2" + at_end + refused + "; [::1]" + at_end));
  CHECK(contains(lost.message(), "; 127.0.0.1" + at_end + refused));
}

TEST_CASE("an unknown name is not found") {
  // steady: this name does not exist, so nothing connects to the fixed port
  const auto missing = tcp_socket::connect("no-such-host.invalid", "80", 20s).error();
  CHECK((missing == error_kind::not_found || missing == error_kind::timed_out));
  CHECK(missing.message().size() > 20);
}

TEST_CASE("the error about an unreachable address reports the cause") {
  // These addresses are reserved for documentation. Without a route, connecting to them fails
  // immediately. With a route, no host answers.
  for (const char* address : {"2001:db8::1", "192.0.2.1"}) {
    CAPTURE(address);
    // steady: no host has this address, so no server can listen on this port
    const auto lost = tcp_socket::connect(address, "4711", 50ms).error();
    CHECK((lost == error_kind::not_connected || lost == error_kind::timed_out));
    CHECK(contains(lost.message(), address));
    CHECK(contains(lost.message(), "4711: "));
  }
}

TEST_CASE("a socket can be moved and released") {
  const auto listener = tcp_listener::open("0", "127.0.0.1").value();
  auto one = tcp_socket::connect("127.0.0.1", std::to_string(listener.port()), 10s).value();
  const int descriptor = one.descriptor();
  tcp_socket other = std::move(one);
  CHECK(other.descriptor() == descriptor);
  const int given = other.release();
  CHECK(!other.is_open());
  CHECK(::fcntl(given, F_GETFD) != -1);
  tcp_socket again = tcp_socket::from_native(given);
  again = tcp_socket();
  CHECK(::fcntl(given, F_GETFD) == -1);
}
