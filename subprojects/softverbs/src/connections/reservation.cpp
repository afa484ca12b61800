// SPDX-License-Identifier: Apache-2.0
#include "connections/reservation.hpp"

#include "connections/unix_name.hpp"
#include "wire/slot_socket.hpp"
#include "wire/strangers.hpp"

#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <utility>

namespace softverbs {
namespace {

/// The range that the kernel uses for ephemeral ports by default.
constexpr std::uint16_t first_ephemeral = 32768;
constexpr std::uint16_t ephemeral_count = 28232;

/// The number of attempts to bind a name. Another process may bind the name for a moment, to check
/// whether it is free.
constexpr int attempts = 20;

using reservations = std::map<std::string, std::weak_ptr<reservation>>;

reservations& own_reservations() {
  static auto* all = new reservations;  // never freed: threads may still use it at exit
  return *all;
}

/// Returns the name of the socket that reserves a port. Its prefix differs from that of the sockets
/// that carry packets.
std::string name_of(port_space space, const std::string& host, std::uint16_t port) {
  std::array<char, 32> numbers{};
  std::snprintf(numbers.data(), numbers.size(), "/%x/%u", space, port);
  return std::string("softverbs-connections/") + own_kind() + "/" + host + numbers.data();
}

void close_socket(int& socket) noexcept {
  if (socket != reservation::none) ::close(std::exchange(socket, reservation::none));
}

/// Returns a socket bound to this name, or `none` with errno.
int bound_socket(const std::string& name) noexcept {
  int socket = open_socket();
  if (socket < 0) return reservation::none;
  const unix_address address(name);
  for (int attempt = 1;; ++attempt) {
    if (::bind(socket, address.native(), address.length) == 0) return socket;
    if (errno != EADDRINUSE || attempt == attempts) break;
    ::sched_yield();
  }
  const int error = errno;
  close_socket(socket);
  errno = error;
  return reservation::none;
}

bool is_free(const std::string& name) noexcept {
  int socket = bound_socket(name);
  if (socket == reservation::none) return false;
  close_socket(socket);
  return true;
}

/// True if no other reservation conflicts with this address. With the same port, a wildcard address
/// and the specific addresses that it includes exclude each other.
bool others_are_free(port_space space, const ip_address& address, bool only_ipv6) {
  if (!address.is_any()) return is_free(name_of(space, any_host(address.is_ipv4()), address.port));
  bool free = true;
  for_each_own_address([&](const place& own) {
    const bool concerns =
        address.is_ipv4() == is_ipv4(own.ip) || (!address.is_ipv4() && !only_ipv6);
    if (free && concerns) free = is_free(name_of(space, host_of(own.ip), address.port));
  });
  return free;
}

std::uint16_t random_port() noexcept {
  std::uint16_t number = 0;
  if (::getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
    number = static_cast<std::uint16_t>(::getpid());
  return static_cast<std::uint16_t>(number % ephemeral_count);
}

}  // namespace

bool reservation::bind(port_space space, const ip_address& address, reservation_options options) {
  const bool any = address.is_any();
  const std::string host = any ? any_host(address.is_ipv4()) : host_of(canonical(address));
  sockets[0] = bound_socket(name_of(space, host, address.port));
  if (sockets[0] == none) return false;
  if (any && !address.is_ipv4() && !options.only_ipv6) {
    sockets[1] = bound_socket(name_of(space, any_host(true), address.port));
    if (sockets[1] == none) return false;
  }
  if (options.reusable || others_are_free(space, address, options.only_ipv6)) return true;
  errno = EADDRINUSE;
  return false;
}

std::shared_ptr<reservation> reservation::make(port_space space, ip_address& address,
                                               reservation_options options) {
  const auto attempt = [&]() -> std::shared_ptr<reservation> {
    ip_address canonical_address = address;
    canonical_address.ip = canonical(address);
    const std::string key = name_of(space, host_of(canonical_address.ip), address.port);
    reservations& all = own_reservations();
    if (const auto there = all.find(key); there != all.end())
      if (auto shared = there->second.lock();
          shared && shared->reusable_ && options.reusable && !shared->listens_)
        return shared;
    auto made = std::make_shared<reservation>();
    if (!made->bind(space, address, options)) return nullptr;
    made->reusable_ = options.reusable;
    made->key_ = key;
    all[key] = made;
    return made;
  };
  if (address.port != 0) return attempt();
  const std::uint16_t start = random_port();
  for (unsigned step = 0; step < ephemeral_count; ++step) {
    address.port = static_cast<std::uint16_t>(first_ephemeral + (start + step) % ephemeral_count);
    if (auto made = attempt()) return made;
    if (errno != EADDRINUSE) break;
  }
  address.port = 0;
  if (errno == EADDRINUSE) errno = EADDRNOTAVAIL;
  return nullptr;
}

reservation::~reservation() {
  const int error = errno;
  for (int& socket : sockets) close_socket(socket);
  if (!key_.empty()) {
    const auto there = own_reservations().find(key_);
    if (there != own_reservations().end() && there->second.expired())
      own_reservations().erase(there);
  }
  errno = error;
}

bool reservation::listen(int backlog) noexcept {
  // The kernel queues one connection more than the backlog.
  for (const int socket : sockets)
    if (socket != none && ::listen(socket, backlog - 1) != 0) return false;
  listens_ = true;
  return true;
}

void reservation::abandon() noexcept {
  for (int& socket : sockets) close_socket(socket);
}

void reservation::abandon_all() noexcept {
  for (const auto& [name, each] : own_reservations())
    if (const auto there = each.lock()) there->abandon();
}

int connect_to(port_space space, const ip_address& address) noexcept {
  int socket = open_socket();
  if (socket < 0) return reservation::none;
  for (const std::string& host : {host_of(canonical(address)), any_host(address.is_ipv4())}) {
    const unix_address to(name_of(space, host, address.port));
    if (::connect(socket, to.native(), to.length) == 0) return socket;
    if (errno != ECONNREFUSED) break;
  }
  const int error = errno;
  close_socket(socket);
  errno = error;
  return reservation::none;
}

}  // namespace softverbs
