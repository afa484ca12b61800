// SPDX-License-Identifier: Apache-2.0
#include "calls.hpp"
#include <verbspp/calls.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

namespace {

constexpr std::uint32_t calling_processes = 4;
/// The number of receives that the service keeps posted for each client. Each client has one credit
/// for each of these receives, but only one call in flight.
constexpr std::uint32_t receives_of_client = 32;

struct answer_client {
  static constexpr std::uint16_t number = 1;
  static constexpr const char* name = "echo";
  using request = std::array<std::byte, 32>;
  using answer = std::array<std::byte, 32>;
};

/// The number of RNR NAKs that the device has sent or received. softverbs counts only those of this
/// process.
result<std::uint64_t> refused_messages(const side& mine) {
  const auto device = mine.domain.context();
  std::uint64_t all = 0;
  for (const std::string_view name : {"rcvd_rnr_err", "send_rnr_err"}) {
    std::ifstream file("/sys/class/infiniband/" + std::string(device.device_name()) +
                       "/ports/1/hw_counters/" + std::string(name));
    std::uint64_t count = 0;
    if (!(file >> count))
      return error(error_kind::not_supported, "count RNR NAKs", "the device does not count them");
    all += count;
  }
  return all;
}

/// Checks that no message has waited for a receive since the number of NAKs was `before`.
result<void> check_receives(const side& mine, std::uint64_t before) {
  VERBSPP_TRY(count, refused_messages(mine));
  if (count == before) return success();
  return error(error_kind::mismatch, "count RNR NAKs",
               "messages of calls have waited for a receive");
}

/// A client with one call in flight.
struct one_client {
  std::optional<caller> calls{};
  channel link{};  ///< moved into the caller when the caller starts
  pending_call<answer_client> open{};

  result<void> call() {
    VERBSPP_TRY(posted, calls->post_call<answer_client>({}));
    open = std::move(posted);
    return success();
  }
};

/// Makes `count` calls, with one call of each client in flight.
result<void> call_by_all(const channel_hub& hub, std::vector<one_client>& clients,
                         std::uint64_t count) {
  std::uint64_t unposted = count;
  for (one_client& each : clients) {
    VERBSPP_TRYV(each.call());
    --unposted;
  }
  std::array<arrival, 16> slots;
  while (count != 0) {
    VERBSPP_TRY(arrived, hub.wait(slots, patience));
    for (const arrival& each : arrived) {
      one_client& client = clients[each.source.index];
      if (!client.open.has_call()) continue;
      auto answer = client.open.poll();
      if (!answer) continue;
      VERBSPP_TRYV(*answer);
      --count;
      if (unposted == 0) continue;
      VERBSPP_TRYV(client.call());
      --unposted;
    }
  }
  return success();
}

/// Serves until each of the calling processes has sent a byte.
result<void> serve_until_all_meet(const side& mine, service& serving) {
  std::vector<int> missing(mine.sockets.begin(), mine.sockets.end());
  while (!missing.empty()) {
    VERBSPP_TRYV(serving.serve(2ms));
    char got = 0;
    errno = ECONNRESET;
    const ssize_t size = ::recv(missing.back(), &got, 1, MSG_DONTWAIT);
    if (size == 1)
      missing.pop_back();
    else if (size == 0 || errno != EAGAIN)
      return error::from_errno(errno, "wait for the clients", "see their output");
  }
  return success();
}

/// The number of calls that each process makes in a round: at least one for each client.
std::uint64_t calls_of_process(const side& mine, std::uint32_t clients) {
  return std::max<std::uint64_t>(mine.messages * 2, clients);
}

template <std::uint32_t Clients>
result<nanoseconds_each> measure_clients(const side& mine) {
  constexpr std::uint32_t own = Clients / calling_processes;
  VERBSPP_TRY(refused, refused_messages(mine));
  VERBSPP_TRY(hub, channel_hub::create(
                       mine.domain,
                       {.channels = own, .completions = own * 64, .waiting = wait_mode::sleep()}));
  std::vector<one_client> clients(own);
  for (std::uint32_t i = 0; i < own; ++i) {
    VERBSPP_TRY(prepared, mine.domain.build_channel()
                              .hub(hub)
                              .max_send_work_requests(receives_of_client)
                              .max_receive_work_requests(2 * receives_of_client)
                              .build());
    VERBSPP_TRY(calls, caller::open(prepared, {.in_flight = receives_of_client}));
    VERBSPP_TRY(connected, connect(mine, std::move(prepared)));
    one_client& added = clients[connected.id().index];
    added.calls = std::move(calls);
    added.link = std::move(connected);
  }
  VERBSPP_TRYV(meet(mine.socket));
  for (one_client& each : clients)
    VERBSPP_TRYV(each.calls->start<answer_client>(std::move(each.link), patience));
  const std::uint64_t count = calls_of_process(mine, own);
  VERBSPP_TRYV(call_by_all(hub, clients, std::max<std::uint64_t>(count / 10, own)));
  VERBSPP_TRYV(meet(mine.socket));
  const auto begin = clock_type::now();
  VERBSPP_TRYV(call_by_all(hub, clients, count));
  const auto length = clock_type::now() - begin;
  VERBSPP_TRYV(check_receives(mine, refused));
  VERBSPP_TRYV(meet(mine.socket));
  return nanoseconds_each{std::chrono::nanoseconds(length).count() /
                          static_cast<std::int64_t>(count * calling_processes)};
}

template <std::uint32_t Clients>
result<void> answer_clients(const side& mine) {
  VERBSPP_TRY(refused, refused_messages(mine));
  VERBSPP_TRY(
      serving,
      service::create(
          mine.domain,
          {.clients = Clients, .in_flight = receives_of_client, .waiting = wait_mode::sleep()},
          handles<answer_client>([](const answer_client::request& asked) { return asked; })));
  for (const int each : mine.sockets) {
    const side one{mine.domain, each, mine.messages};
    for (std::uint32_t i = 0; i < Clients / calling_processes; ++i) {
      VERBSPP_TRY(prepared, mine.domain.build_channel()
                                .hub(serving.hub())
                                .max_send_work_requests(receives_of_client)
                                .build());
      VERBSPP_TRY(connected, connect(one, std::move(prepared)));
      VERBSPP_TRYV(serving.add(std::move(connected)));
    }
  }
  // The processes meet three times: when all clients are connected, have warmed up, and have
  // finished.
  for (int meetings = 0; meetings < 3; ++meetings) {
    VERBSPP_TRYV(serve_until_all_meet(mine, serving));
    for (const int each : mine.sockets)
      if (::send(each, "m", 1, MSG_NOSIGNAL) != 1)
        return error::from_errno(errno, "answer the clients", "see their output");
  }
  return check_receives(mine, refused);
}

}  // namespace

const form calls_of_few{measure_clients<16>, answer_clients<16>, calling_processes};
const form calls_of_many{measure_clients<512>, answer_clients<512>, calling_processes};

}  // namespace bench
