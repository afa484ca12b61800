// SPDX-License-Identifier: Apache-2.0
/// \file
/// A server with one thread and one epoll descriptor. It serves the RDMA clients of a hub, TCP
/// clients and a timer, and ends on SIGTERM. The clients are threads of this program.

#include <verbspp/channel.hpp>
#include <verbspp/exchange.hpp>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr auto patience = 30s;
constexpr unsigned clients_of_each_kind = 3, requests = 200;

/// Adds a descriptor to the epoll instance. Its events have the descriptor as their tag.
result<void> watch(const tcp_socket& loop, int descriptor) {
  epoll_event entry{.events = EPOLLIN, .data = {.fd = descriptor}};
  if (::epoll_ctl(loop.descriptor(), EPOLL_CTL_ADD, descriptor, &entry) == 0) return success();
  return error::from_errno(errno, "epoll_ctl");
}

/// Echoes the bytes that have arrived. \returns false if the connection has ended
bool echo_by_tcp(int client) {
  std::array<char, 256> bytes{};
  const ssize_t length = ::recv(client, bytes.data(), bytes.size(), 0);
  if (length < 0) return errno == EAGAIN || errno == EINTR;
  return length > 0 && ::send(client, bytes.data(), static_cast<std::size_t>(length),
                              MSG_NOSIGNAL) == length;  // short messages fit into the buffer
}

result<void> serve(const protection_domain& domain, tcp_listener rdma, tcp_listener tcp,
                   const sigset_t& signals) {
  VERBSPP_TRY(pool, message_pool::create(domain, 256, 256));
  VERBSPP_TRY(hub, channel_hub::create(domain, pool, {.waiting = wait_mode::sleep()}));
  VERBSPP_TRY(clients, hub_clients<std::uint32_t>::create(hub));
  const auto prepare = [&]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t>> {
    VERBSPP_TRY(prepared, domain.build_channel().hub(hub).build());
    return exchange_offer{std::move(prepared), std::uint32_t{0}};
  };
  VERBSPP_TRY(acceptor, accept_exchanges<std::uint32_t>(std::move(rdma), prepare));
  const auto loop = tcp_socket::from_native(::epoll_create1(EPOLL_CLOEXEC));
  const auto ended = tcp_socket::from_native(::signalfd(-1, &signals, SFD_CLOEXEC));
  const auto timer = tcp_socket::from_native(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  constexpr timespec tick{.tv_sec = 0, .tv_nsec = 10'000'000};
  const itimerspec period{.it_interval = tick, .it_value = tick};
  ::timerfd_settime(timer.descriptor(), 0, &period, nullptr);
  for (const int each : {clients.file_descriptor(), acceptor.file_descriptor(), tcp.descriptor(),
                         ended.descriptor(), timer.descriptor()})
    VERBSPP_TRYV(watch(loop, each));
  std::map<int, tcp_socket> tcp_clients;
  std::uint64_t by_rdma = 0, by_tcp = 0, ticks = 0;

  for (bool is_running = true; is_running;) {
    // 1. Request the next wakeup of the hub. The other descriptors need no request.
    VERBSPP_TRY(has_news, clients.request_notification());
    // 2. Sleep, unless there are messages already.
    const auto remaining = clients.deadline() - std::chrono::steady_clock::now();
    const auto longest = std::clamp<std::chrono::nanoseconds>(remaining, 0s, 1h);
    const auto timeout = std::chrono::ceil<std::chrono::milliseconds>(has_news ? 0s : longest);
    std::array<epoll_event, 16> events{};
    const int count =
        ::epoll_wait(loop.descriptor(), events.data(), 16, static_cast<int>(timeout.count()));
    if (count < 0 && errno != EINTR) return error::from_errno(errno, "epoll_wait");
    // 3. Work. Nothing here blocks.
    for (int i = 0; i < count; ++i) {
      const int ready = events[static_cast<std::size_t>(i)].data.fd;
      std::uint64_t expired = 0;
      if (ready == ended.descriptor()) {
        is_running = false;
      } else if (ready == timer.descriptor()) {
        if (::read(ready, &expired, sizeof expired) > 0) ticks += expired;
      } else if (ready == tcp.descriptor()) {
        VERBSPP_TRY(client, tcp.try_accept());
        if (!client) continue;
        VERBSPP_TRYV(watch(loop, client->descriptor()));
        tcp_clients.emplace(client->descriptor(), std::move(*client));
      } else if (ready == acceptor.file_descriptor()) {
        VERBSPP_TRYV(acceptor.poll());
        while (auto client = acceptor.take())
          VERBSPP_TRYV(clients.add(std::move(client->met.channel), client->met.theirs));
      } else if (tcp_clients.contains(ready)) {
        if (echo_by_tcp(ready))
          ++by_tcp;
        else
          tcp_clients.erase(ready);
      }
    }
    for (;;) {
      VERBSPP_TRY(client, clients.poll());
      if (!client) break;
      while (auto request = client->next())
        if (client->link().post_send(std::move(*request)).has_value()) ++by_rdma;
    }
  }
  std::cout << by_rdma << " echoes by RDMA, " << by_tcp << " by TCP, " << ticks << " ticks\n";
  return success();
}

result<void> ask_by_rdma(const protection_domain& domain, const std::string& port) {
  VERBSPP_TRY(prepared, domain.build_channel().max_inline_data(64).build());
  VERBSPP_TRY(pool, message_pool::create(domain, 16, 256));
  VERBSPP_TRY(answers, inbox::open(prepared, pool));
  VERBSPP_TRY(socket, tcp_socket::connect("127.0.0.1", port, patience));
  VERBSPP_TRY(met, exchange<std::uint32_t>(socket.descriptor(), std::move(prepared),
                                           std::uint32_t{1}, patience));
  for (unsigned i = 0; i < requests; ++i) {
    VERBSPP_TRYV(met.channel.post_send({.elements = inline_payload(i)}));
    VERBSPP_TRY(answer, answers.wait(patience));
    if (answer.size() != sizeof i)
      return error(error_kind::mismatch, "echo", "the answer has the wrong length");
  }
  return success();
}

result<void> ask_by_tcp(const std::string& port) {
  VERBSPP_TRY(socket, tcp_socket::connect("127.0.0.1", port, patience));
  for (unsigned i = 0; i < requests; ++i) {
    unsigned answer = 0;
    pollfd entry{.fd = socket.descriptor(), .events = POLLIN, .revents = 0};
    errno = ECONNRESET;  // reported if the server has closed the connection
    if (::send(entry.fd, &i, sizeof i, MSG_NOSIGNAL) != sizeof i || ::poll(&entry, 1, -1) != 1 ||
        ::recv(entry.fd, &answer, sizeof answer, 0) != sizeof answer)
      return error::from_errno(errno, "echo by TCP");
    if (answer != i) return error(error_kind::mismatch, "echo by TCP", "the answer differs");
  }
  return success();
}

result<void> run(std::string_view device_name) {
  // Block the signal before the first thread starts, so that all threads inherit the block, and
  // only the loop receives the signal.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(rdma, tcp_listener::open("0"));
  VERBSPP_TRY(tcp, tcp_listener::open("0"));
  std::vector<result<void>> outcomes(2 * clients_of_each_kind, success());
  std::thread all_clients(
      [&, rdma_port = std::to_string(rdma.port()), tcp_port = std::to_string(tcp.port())] {
        std::vector<std::thread> clients;
        for (std::size_t i = 0; i < outcomes.size(); ++i)
          clients.emplace_back([&, i] {
            outcomes[i] = i % 2 == 0 ? ask_by_rdma(domain, rdma_port) : ask_by_tcp(tcp_port);
          });
        for (std::thread& each : clients) each.join();
        ::kill(::getpid(), SIGTERM);
      });
  const auto served = serve(domain, std::move(rdma), std::move(tcp), signals);
  all_clients.join();
  for (const auto& each : outcomes) VERBSPP_TRYV(each);
  return served;
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
