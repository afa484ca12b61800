// SPDX-License-Identifier: Apache-2.0
#include "support/rsocket_pair.hpp"

#include "catch.hpp"

#include <fcntl.h>
#include <poll.h>

#include <string_view>
#include <utility>

namespace {

std::string text_of(const sockaddr_in6& address) {
  return text_of(reinterpret_cast<const sockaddr*>(&address)) + " " +
         std::to_string(ntohs(address.sin6_port));
}

int domain_of(const char* address) {
  return std::string_view(address).find(':') == std::string_view::npos ? AF_INET : AF_INET6;
}

one_rsocket connected_to(const rsocket_listener& listener, int mappings) {
  one_rsocket client;
  if (mappings != 0) client.set(SOL_RDMA, RDMA_IOMAPSIZE, mappings);
  REQUIRE(client.connect("198.18.83.1", listener.port()) == 0);
  return client;
}

}  // namespace

one_rsocket::one_rsocket(int type, int domain) : descriptor(rsocket(domain, type, 0)) {
  REQUIRE(descriptor >= 0);
}

one_rsocket one_rsocket::of(int descriptor) {
  REQUIRE(descriptor >= 0);
  return {adopted(), descriptor};
}

one_rsocket::one_rsocket(one_rsocket&& from) noexcept
    : descriptor(std::exchange(from.descriptor, -1)) {}

void one_rsocket::close() {
  if (descriptor >= 0) rclose(std::exchange(descriptor, -1));
}

int one_rsocket::bind(const char* address, std::uint16_t port) const {
  sockaddr_in6 to = ip(address, port);
  return rbind(descriptor, of_c(to), sizeof(to));
}

int one_rsocket::connect(const char* address, std::uint16_t port) const {
  sockaddr_in6 to = ip(address, port);
  return rconnect(descriptor, of_c(to), sizeof(to));
}

std::uint16_t one_rsocket::port() const {
  sockaddr_in6 found{};
  socklen_t length = sizeof(found);
  REQUIRE(rgetsockname(descriptor, of_c(found), &length) == 0);
  return ntohs(found.sin6_port);
}

std::string one_rsocket::name() const {
  sockaddr_in6 found{};
  socklen_t length = sizeof(found);
  REQUIRE(rgetsockname(descriptor, of_c(found), &length) == 0);
  return text_of(found);
}

std::string one_rsocket::peer_name() const {
  sockaddr_in6 found{};
  socklen_t length = sizeof(found);
  REQUIRE(rgetpeername(descriptor, of_c(found), &length) == 0);
  return text_of(found);
}

void one_rsocket::send(const std::string& text) const {
  REQUIRE(rsend(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
}

std::string one_rsocket::receive(std::size_t length) const {
  std::string text(length, '\0');
  const ssize_t got = rrecv(descriptor, text.data(), length, MSG_WAITALL);
  REQUIRE(got >= 0);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

void one_rsocket::set(int level, int option, int value) const {
  REQUIRE(rsetsockopt(descriptor, level, option, &value, sizeof(value)) == 0);
}

int one_rsocket::get(int level, int option) const {
  int value = -1;
  socklen_t length = sizeof(value);
  REQUIRE(rgetsockopt(descriptor, level, option, &value, &length) == 0);
  REQUIRE(length == sizeof(value));
  return value;
}

void one_rsocket::make_nonblocking() const {
  REQUIRE(rfcntl(descriptor, F_SETFL, O_NONBLOCK) == 0);
}

int one_rsocket::ready(int events) const {
  pollfd asked{descriptor, static_cast<short>(events), 0};
  const int result = rpoll(&asked, 1, 0);
  REQUIRE(result == (asked.revents != 0 ? 1 : 0));
  return asked.revents;
}

int one_rsocket::wait_for(int events) const {
  pollfd asked{descriptor, static_cast<short>(events), 0};
  REQUIRE(rpoll(&asked, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) == 1);
  return asked.revents;
}

rsocket_listener::rsocket_listener(const char* address, int mappings)
    : one_rsocket(SOCK_STREAM, domain_of(address)) {
  if (mappings != 0) set(SOL_RDMA, RDMA_IOMAPSIZE, mappings);
  REQUIRE(bind(address) == 0);
  REQUIRE(rlisten(descriptor, 8) == 0);
}

one_rsocket rsocket_listener::accept() const {
  return one_rsocket::of(raccept(descriptor, nullptr, nullptr));
}

rsocket_pair::rsocket_pair(int mappings)
    : listener("198.18.83.1", mappings),
      client(connected_to(listener, mappings)),
      server(listener.accept()) {}
