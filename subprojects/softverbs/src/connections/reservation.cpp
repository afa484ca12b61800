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

/// The reservations, indexed by the names of their sockets.
using reservations = std::map<std::string, std::weak_ptr<reservation>>;

reservations& own_reservations() {
  static auto* all = new reservations;  // never freed: threads may still use it at exit
  return *all;
}

std::shared_ptr<reservation> own_reservation(const std::string& name) {
  const auto found = own_reservations().find(name);
  return found == own_reservations().end() ? nullptr : found->second.lock();
}

/// Returns the name of the socket that reserves a port. The names of the sockets that carry packets
/// have a different prefix.
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

std::uint16_t random_port() noexcept {
  std::uint16_t number = 0;
  if (::getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
    number = static_cast<std::uint16_t>(::getpid());
  return static_cast<std::uint16_t>(number % ephemeral_count);
}

}  // namespace

reservation::reservation(port_space space, const ip_address& address, reservation_options options)
    : space_(space), address_(address), options_(options) {
  const bool any = address.is_any();
  names_[0] =
      name_of(space, any ? any_host(address.is_ipv4()) : host_of(canonical(address)), address.port);
  if (any && !address.is_ipv4() && !options.only_ipv6)
    names_[1] = name_of(space, any_host(true), address.port);
}

bool reservation::bind(bool shares) {
  for (std::size_t at = 0; at < sockets.size(); ++at) {
    if (names_[at].empty()) continue;
    sockets[at] = bound_socket(names_[at]);
    if (sockets[at] != none) continue;
    if (errno == EADDRINUSE && address_.is_any()) errno = EADDRNOTAVAIL;
    return false;
  }
  return others_are_free(shares);
}

bool reservation::others_are_free(bool shares) const {
  int error = 0;
  const auto check = [&](const std::string& host) {
    if (error != 0) return;
    const std::string name = name_of(space_, host, address_.port);
    if (is_free(name)) return;
    error = errno;
    if (error != EADDRINUSE) return;  // a lack of resources
    const auto other = shares ? own_reservation(name) : nullptr;
    error = other && other->may_be_shared() ? 0 : EADDRNOTAVAIL;
  };
  if (!address_.is_any())
    check(any_host(address_.is_ipv4()));
  else
    for_each_own_address([&](const place& own) {
      if (address_.is_ipv4() == is_ipv4(own.ip) || (!address_.is_ipv4() && !options_.only_ipv6))
        check(host_of(own.ip));
    });
  if (error != 0) errno = error;
  return error == 0;
}

std::shared_ptr<reservation> reservation::make(port_space space, ip_address& address,
                                               reservation_options options) {
  const auto attempt = [&](bool shares) -> std::shared_ptr<reservation> {
    auto made = std::make_shared<reservation>(space, address, options);
    if (shares)
      if (auto shared = own_reservation(made->names_[0]);
          shared && shared->may_be_shared() && shared->names_ == made->names_)
        return shared;
    if (!made->bind(shares)) return nullptr;
    for (const std::string& name : made->names_)
      if (!name.empty()) own_reservations()[name] = made;
    return made;
  };
  if (address.port != 0) return attempt(options.reusable);
  const std::uint16_t start = random_port();
  for (unsigned step = 0; step < ephemeral_count; ++step) {
    address.port = static_cast<std::uint16_t>(first_ephemeral + (start + step) % ephemeral_count);
    if (auto made = attempt(false)) return made;
    if (errno != EADDRINUSE && errno != EADDRNOTAVAIL) break;
  }
  address.port = 0;
  if (errno == EADDRINUSE) errno = EADDRNOTAVAIL;
  return nullptr;
}

reservation::~reservation() {
  const int error = errno;
  for (int& socket : sockets) close_socket(socket);
  for (const std::string& name : names_) {
    const auto there = own_reservations().find(name);
    if (there != own_reservations().end() && there->second.expired())
      own_reservations().erase(there);
  }
  errno = error;
}

bool reservation::listen(int backlog) {
  if (weak_from_this().use_count() != 1) {
    errno = address_.is_any() ? EADDRNOTAVAIL : EADDRINUSE;
    return false;
  }
  if (options_.reusable && !others_are_free(false)) return false;
  // The kernel queues one connection more than the backlog.
  for (const int socket : sockets)
    if (socket != none && ::listen(socket, backlog - 1) != 0) return false;
  listens_ = true;
  return true;
}

void reservation::abandon() noexcept {
  for (int& socket : sockets) close_socket(socket);
  is_abandoned_ = true;
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
