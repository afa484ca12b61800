// SPDX-License-Identifier: Apache-2.0
/// \file
/// Compares verbspp with plain C in one run. The compared numbers are those that users notice: the
/// echoes per second of a server that sleeps on a hub of 16 clients, the round trip time of 64
/// bytes through an inbox or a hub, and the time that a stop request takes to wake a thread.
/// Coroutines, calls and lent memory are compared with another loop of verbspp, or with TCP,
/// instead of C (`comparisons`). Each end is a process, except that the clients of `clients` run in
/// 4 processes. The rounds of the two sides alternate.
///
///     echo-bench [--device NAME] [--rounds N] [--messages N] [--only NAME]

#include "calls.hpp"
#include "plain.h"
#include "side.hpp"
#include <verbspp/coroutine.hpp>
#include <verbspp/verbspp.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace bench {
namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr work_request_count depth = int{echo_depth};
/// One end of the C version. The library creates and connects most of the end's objects, but this
/// is not measured.
template <receive_queue_kind Receives>
struct plain_objects {
  using pair = connected_queue_pair<transport::rc, Receives>;

  result<void> open(const side& mine, std::uint32_t count, std::uint32_t receives, bool sleeps) {
    const context device = mine.domain.context();
    if (sleeps) end.channel = ibv_create_comp_channel(device.native_handle());
    end.cq = ibv_create_cq(device.native_handle(), 2 * echo_places, nullptr, end.channel, 0);
    VERBSPP_TRY(made_queue, completion_queue::from_native(device, end.cq, ownership::taken));
    queue = made_queue;
    VERBSPP_TRY(made_memory, registered_buffer<access::local_write>::allocate(
                                 mine.domain, std::size_t{echo_places} * echo_bytes));
    memory.emplace(std::move(made_memory));
    plain_fill_pool(&end.pool, memory->native_handle());
    const auto builder = build_queue_pair<transport::rc>()
                             .protection_domain(mine.domain)
                             .completion_queue(made_queue)
                             .access(access::local_write)
                             .max_send_work_requests(depth);
    if constexpr (Receives == receive_queue_kind::shared) {
      VERBSPP_TRY(made, shared_receive_queue::create(mine.domain, int{echo_receives}));
      end.srq = made.native_handle();
      shared = made;
      VERBSPP_TRYV(check(plain_refill(&end, receives), "ibv_post_srq_recv"));
      return add(mine, count, [&] { return builder.shared_receive_queue(made).build(); });
    } else {
      return add(mine, count, [&] { return builder.max_receive_work_requests(depth).build(); });
    }
  }

  template <class Build>
  result<void> add(const side& mine, std::uint32_t count, Build build) {
    for (; end.count < count; ++end.count) {
      VERBSPP_TRY(prepared, build());
      end.qps[end.count] = prepared.native_handle();
      if (end.srq == nullptr) VERBSPP_TRYV(check(plain_refill(&end, echo_depth), "ibv_post_recv"));
      VERBSPP_TRY(connected, connect(mine, std::move(prepared)));
      pairs.push_back(std::move(connected));
    }
    return meet(mine.socket);
  }

  plain_end end{};
  std::optional<completion_queue> queue{};
  std::optional<registered_buffer<access::local_write>> memory{};
  std::optional<shared_receive_queue> shared{};
  std::vector<pair> pairs{};
};

// The following code measures a server that has 16 clients, and sleeps between messages.

result<nanoseconds_each> load(const side& mine) {
  plain_objects<receive_queue_kind::shared> clients;
  VERBSPP_TRYV(clients.open(mine, echo_clients, echo_receives, true));
  VERBSPP_TRYV(check(plain_load(&clients.end, mine.messages / 10), "warm up"));
  const auto begin = clock_type::now();
  VERBSPP_TRYV(check(plain_load(&clients.end, mine.messages), "load"));
  const std::chrono::nanoseconds length = clock_type::now() - begin;
  VERBSPP_TRYV(meet(mine.socket));
  return nanoseconds_each{length.count() / static_cast<std::int64_t>(mine.messages)};
}

result<void> serve_plain(const side& mine) {
  plain_objects<receive_queue_kind::shared> server;
  VERBSPP_TRYV(server.open(mine, echo_clients, echo_receives, true));
  VERBSPP_TRYV(check(plain_serve(&server.end, all_messages(mine)), "serve"));
  return meet(mine.socket);
}

[[gnu::noinline]] result<void> serve(const channel_hub& hub, std::span<channel> clients,
                                     std::uint64_t messages) {
  std::array<arrival, echo_slots> slots;
  while (messages != 0) {
    VERBSPP_TRY(arrived, hub.wait(slots, patience));
    for (arrival& each : arrived) {
      channel& client = clients[each.source.index];
      if (!each.message) {
        client.poll();
        continue;
      }
      VERBSPP_TRYV(client.post_send(std::move(each.message)));
      --messages;
    }
  }
  return success();
}

/// The server's channels to its clients, and the pool and the hub that they share.
struct hub_server {
  static result<hub_server> open(const side& mine) {
    VERBSPP_TRY(pool, message_pool::create(mine.domain, echo_places, echo_bytes));
    VERBSPP_TRY(hub, channel_hub::create(mine.domain, pool,
                                         {.channels = echo_clients,
                                          .completions = 2 * echo_places,
                                          .receives = echo_receives,
                                          .refill = echo_refill,
                                          .waiting = wait_mode::sleep()}));
    std::vector<channel> clients(echo_clients);
    for (std::uint32_t i = 0; i < echo_clients; ++i) {
      VERBSPP_TRY(prepared, mine.domain.build_channel()
                                .hub(hub)
                                .waiting(wait_mode::sleep())
                                .max_send_work_requests(depth)
                                .build());
      VERBSPP_TRY(connected, connect(mine, std::move(prepared)));
      clients[connected.id().index] = std::move(connected);
    }
    return hub_server{std::move(pool), std::move(hub), std::move(clients)};
  }

  message_pool pool;
  channel_hub hub;
  std::vector<channel> clients;
};

result<void> serve_hub(const side& mine) {
  VERBSPP_TRY(server, hub_server::open(mine));
  VERBSPP_TRYV(meet(mine.socket));
  VERBSPP_TRYV(serve(server.hub, server.clients, all_messages(mine)));
  return meet(mine.socket);
}

// The same server with a coroutine for each client.

class routine {
 public:
  struct promise_type {
    routine get_return_object() { return routine(handle::from_promise(*this)); }
    static std::suspend_never initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(const transport_result<void>& returned) { result = returned; }
    [[noreturn]] static void unhandled_exception() { std::terminate(); }
    std::optional<transport_result<void>> result{};
  };

  routine(routine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  routine& operator=(routine&&) = delete;
  /// The result of the coroutine; empty until it has ended.
  [[nodiscard]] const std::optional<transport_result<void>>& ended() const {
    return handle_.promise().result;
  }
  ~routine() {
    if (handle_) handle_.destroy();
  }

 private:
  using handle = std::coroutine_handle<promise_type>;
  explicit routine(handle started) : handle_(started) {}
  handle handle_;
};

routine serve_client(channel& link, inbox requests, std::uint64_t& left) {
  for (;;) {
    VERBSPP_CO_TRY(request, co_await requests.async_wait(wait_limit::forever()));
    VERBSPP_CO_TRYV(co_await link.async_send(std::move(request)));
    --left;
  }
}

routine poll_hub(event_loop& loop, channel_hub& hub) {
  for (;;) {
    VERBSPP_CO_TRYV(co_await loop.async_ready(hub));
    VERBSPP_CO_TRYV(hub.poll());
  }
}

result<void> serve_coroutines(const side& mine) {
  VERBSPP_TRY(server, hub_server::open(mine));
  std::uint64_t left = all_messages(mine);
  std::vector<routine> serving;
  for (channel& each : server.clients) {
    VERBSPP_TRY(requests, inbox::open(each, server.pool));
    serving.push_back(serve_client(each, std::move(requests), left));
  }
  event_loop loop;
  const routine polling = poll_hub(loop, server.hub);
  VERBSPP_TRYV(meet(mine.socket));
  while (left != 0) {
    VERBSPP_TRY(has_run, loop.run_once(patience));
    if (!has_run) return error(error_kind::timed_out, "serve", "no message has arrived");
  }
  return meet(mine.socket);
}

// The following code measures a round trip of 64 bytes between two ends that both spin.

template <receive_queue_kind Receives>
result<nanoseconds_each> ask_plain(const side& mine) {
  plain_objects<Receives> own;
  VERBSPP_TRYV(own.open(mine, 1, echo_depth, false));
  return time_each(mine, [&] { return check(plain_ask(&own.end), "ask"); });
}

template <receive_queue_kind Receives>
result<void> answer_plain(const side& mine) {
  plain_objects<Receives> own;
  VERBSPP_TRYV(own.open(mine, 1, echo_depth, false));
  return answer_each(mine, [&] { return check(plain_answer(&own.end), "answer"); });
}

/// A channel, and the inbox that receives its messages.
struct by_inbox {
  static result<by_inbox> open(const side& mine) {
    VERBSPP_TRY(pool, message_pool::create(mine.domain, echo_places, echo_bytes));
    VERBSPP_TRY(prepared, mine.domain.build_channel().build());
    VERBSPP_TRY(messages, inbox::open(prepared, pool));
    VERBSPP_TRY(connected, connect(mine, std::move(prepared)));
    VERBSPP_TRYV(meet(mine.socket));
    return by_inbox{std::move(pool), std::move(connected), std::move(messages)};
  }
  result<message> next() { return messages.wait(patience); }

  message_pool pool;
  channel link;
  inbox messages;
};

/// A channel, and the hub that receives its messages.
struct by_hub {
  static result<by_hub> open(const side& mine) {
    VERBSPP_TRY(pool, message_pool::create(mine.domain, echo_places, echo_bytes));
    VERBSPP_TRY(hub, channel_hub::create(mine.domain, pool, {.receives = echo_depth}));
    VERBSPP_TRY(prepared, mine.domain.build_channel().hub(hub).build());
    VERBSPP_TRY(connected, connect(mine, std::move(prepared)));
    VERBSPP_TRYV(meet(mine.socket));
    return by_hub{std::move(pool), std::move(hub), std::move(connected)};
  }
  result<message> next() {
    for (;;) {
      std::array<arrival, 1> slot;
      VERBSPP_TRYV(hub.wait(slot, patience));
      if (slot[0].message) return std::move(slot[0].message);
      link.poll();
    }
  }

  message_pool pool;
  channel_hub hub;
  channel link;
};

template <class By>
result<nanoseconds_each> ask(const side& mine) {
  VERBSPP_TRY(own, By::open(mine));
  std::array<std::byte, echo_bytes> question{};
  return time_each(mine, [&]() -> result<void> {
    VERBSPP_TRY(request, own.pool.take());
    VERBSPP_TRYV(request.assign(question));
    VERBSPP_TRYV(own.link.post_send(std::move(request)));
    VERBSPP_TRY(reply, own.next());
    if (reply.size() != echo_bytes)
      return error(error_kind::mismatch, "ask", "the answer has the wrong length");
    return success();
  });
}

template <class By>
result<void> answer(const side& mine) {
  VERBSPP_TRY(own, By::open(mine));
  return answer_each(mine, [&]() -> result<void> {
    VERBSPP_TRY(request, own.next());
    VERBSPP_TRYV(own.link.post_send(std::move(request)));
    return success();
  });
}

// The same round trip with coroutines, for comparison with TCP.

routine ask_awaited(by_inbox& own, const side& mine, nanoseconds_each& times) {
  std::array<std::byte, echo_bytes> question{};
  for (std::uint64_t i = 0; i < all_messages(mine); ++i) {
    const auto begin = clock_type::now();
    VERBSPP_CO_TRY(request, own.pool.take());
    VERBSPP_CO_TRYV(request.assign(question));
    VERBSPP_CO_TRYV(co_await own.link.async_send(std::move(request)));
    VERBSPP_CO_TRYV(co_await own.messages.async_wait(patience));
    const std::chrono::nanoseconds length = clock_type::now() - begin;
    if (i >= mine.messages / 10) times.push_back(length.count());
  }
  co_return success();
}

routine answer_awaited(by_inbox& own, std::uint64_t count) {
  for (; count != 0; --count) {
    VERBSPP_CO_TRY(request, co_await own.messages.async_wait(patience));
    VERBSPP_CO_TRYV(co_await own.link.async_send(std::move(request)));
  }
  co_return success();
}

result<void> run_to_its_end(channel& link, const routine& started) {
  while (!started.ended()) link.poll();
  if (started.ended()->has_value()) return success();
  return error(started.ended()->error());
}

result<nanoseconds_each> measure_awaited(const side& mine) {
  VERBSPP_TRY(own, by_inbox::open(mine));
  nanoseconds_each times;
  times.reserve(mine.messages);
  VERBSPP_TRYV(run_to_its_end(own.link, ask_awaited(own, mine, times)));
  VERBSPP_TRYV(meet(mine.socket));
  return times;
}

result<void> echo_awaited(const side& mine) {
  VERBSPP_TRY(own, by_inbox::open(mine));
  VERBSPP_TRYV(run_to_its_end(own.link, answer_awaited(own, all_messages(mine))));
  return meet(mine.socket);
}

// The following code measures how long a sleeping thread continues to sleep after another thread
// has asked it to stop.

/// \param sleep sleeps until `request` is called; both get the value that `prepare` has returned
template <class Prepare, class Sleep, class Request>
result<nanoseconds_each> time_stops(const side& mine, Prepare prepare, Sleep sleep,
                                    Request request) {
  nanoseconds_each times;
  for (std::uint64_t i = 0; i < std::max<std::uint64_t>(mine.messages / 20, 1); ++i) {
    auto stop = prepare();
    clock_type::time_point begin;
    std::thread requester([&] {
      std::this_thread::sleep_for(300us);  // the other thread sleeps by then
      begin = clock_type::now();
      request(stop);
    });
    const result<void> slept = sleep(stop);
    const auto end = clock_type::now();
    requester.join();
    VERBSPP_TRYV(slept);
    times.push_back(std::chrono::nanoseconds(end - begin).count());
  }
  VERBSPP_TRYV(meet(mine.socket));
  return times;
}

result<nanoseconds_each> stop_plain(const side& mine) {
  const int event = ::eventfd(0, EFD_CLOEXEC);
  auto times = time_stops(
      mine, [&] { return event; },
      [](int sleeping) {
        pollfd watched{.fd = sleeping, .events = POLLIN, .revents = 0};
        std::uint64_t count = 0;
        const bool woken =
            ::poll(&watched, 1, -1) == 1 && ::read(sleeping, &count, sizeof count) == sizeof count;
        return check(woken ? 0 : errno, "poll");
      },
      [](int sleeping) { ::eventfd_write(sleeping, 1); });
  ::close(event);
  return times;
}

result<nanoseconds_each> stop_channel(const side& mine) {
  VERBSPP_TRY(prepared, mine.domain.build_channel().waiting(wait_mode::sleep()).build());
  VERBSPP_TRY(link, connect(mine, std::move(prepared)));
  return time_stops(
      mine, [] { return std::stop_source(); },
      [&](const std::stop_source& stop) -> result<void> {
        VERBSPP_TRYV(link.wait(wait_limit(patience, stop.get_token())));
        return success();
      },
      [](std::stop_source& stop) { stop.request_stop(); });
}

result<void> connect_and_meet(const side& mine) {
  VERBSPP_TRY(prepared, mine.domain.build_channel().build());
  VERBSPP_TRY(link, connect(mine, std::move(prepared)));
  return meet(mine.socket);
}

result<void> only_meet(const side& mine) { return meet(mine.socket); }

struct comparison {
  std::string_view name;
  form plain;
  form verbspp;
  bool is_rate;
  const char* wanted;
  std::size_t percentile = 50;  ///< the percentile of a round's times that is compared
};

const std::array comparisons{
    comparison{"server", {load, serve_plain}, {load, serve_hub}, true, "at least 0.95"},
    // Compared not with C, but with the same server in verbspp, written as a loop over the hub.
    comparison{"awaited", {load, serve_hub}, {load, serve_coroutines}, true, "at least 0.9"},
    comparison{"inbox",
               {ask_plain<receive_queue_kind::own>, answer_plain<receive_queue_kind::own>},
               {ask<by_inbox>, answer<by_inbox>},
               false,
               "at most 1.15"},
    comparison{"hub",
               {ask_plain<receive_queue_kind::shared>, answer_plain<receive_queue_kind::shared>},
               {ask<by_hub>, answer<by_hub>},
               false,
               "at most 1.15"},
    // Compared not with C, but with coroutines of Asio over TCP.
    comparison{"latency", echo_by_tcp, {measure_awaited, echo_awaited}, false, "at most 0.2"},
    // Compared not with C, but with the same service over TCP with Asio.
    comparison{"calls", calls_by_tcp, calls_by_verbspp, true, "at least 5"},
    // 512 clients are compared not with C, but with 16 clients of the same service.
    comparison{"clients", calls_of_few, calls_of_many, true, "at least 1"},
    // In C, the thread sleeps in poll(2) on an eventfd. The 99th percentiles are compared.
    comparison{"stop",
               {stop_plain, only_meet},
               {stop_channel, connect_and_meet},
               false,
               "at most 1000 us",
               99},
    // Compared not with C, but with a stream of writes in verbspp.
    comparison{"lent", stream_of_writes, lending_calls, true, "at least 0.8"},
};

template <class Run>
auto with_device(const options& chosen, std::span<const int> sockets, Run run)
    -> decltype(run(std::declval<const side&>())) {
  VERBSPP_TRY(device, open_device(chosen.device));
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  return run(side{domain, sockets[0], chosen.messages, sockets});
}

/// Runs `body` in a child process. \returns its process ID
template <class Body>
pid_t start(Body body) {
  const pid_t started = ::fork();
  if (started != 0) return started;
  const result<void> ended = body();
  if (!ended.has_value()) std::cerr << ended.error() << '\n';
  std::cerr.flush();
  // `_exit` does not destroy the statics that the child has inherited from its parent.
  ::_exit(ended.has_value() ? 0 : 1);
}

/// Measures a form, with an answering process and one or several measuring processes. \returns the
/// given percentile of the times of the slowest measuring process, in nanoseconds, or 0 if the
/// measurement failed
std::int64_t measure(const options& chosen, const form& one, std::size_t percentile) {
  std::vector<int> answering, measuring;
  int answers[2];
  if (::pipe(answers) != 0) return 0;
  for (std::uint32_t i = 0; i < one.measuring; ++i) {
    int sockets[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 0;
    answering.push_back(sockets[0]);
    measuring.push_back(sockets[1]);
  }
  const auto close_all = [](const std::vector<int>& from) {
    for (const int each : from) ::close(each);
  };
  std::vector<pid_t> processes{start([&] {
    close_all(measuring);
    return with_device(chosen, answering, one.answer);
  })};
  for (const int own : measuring)
    processes.push_back(start([&]() -> result<void> {
      close_all(answering);
      for (const int each : measuring)
        if (each != own) ::close(each);
      VERBSPP_TRY(times, with_device(chosen, {&own, 1}, one.measure));
      std::ranges::sort(times);
      const std::int64_t found = times[times.size() * percentile / 100];
      errno = EIO;
      if (::write(answers[1], &found, sizeof found) != sizeof found)
        return error::from_errno(errno, "write");
      return success();
    }));
  close_all(answering);
  close_all(measuring);
  ::close(answers[1]);
  bool has_failed = false;
  std::int64_t slowest = 0;
  for (std::uint32_t i = 0; i < one.measuring; ++i) {
    std::int64_t found = 0;
    has_failed = ::read(answers[0], &found, sizeof found) != sizeof found || has_failed;
    slowest = std::max(slowest, found);
  }
  ::close(answers[0]);
  for (const pid_t each : processes) {
    int status = 0;
    has_failed = ::waitpid(each, &status, 0) != each || status != 0 || has_failed;
  }
  return has_failed ? 0 : slowest;
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Measures both sides of a comparison in alternating rounds. The reported ratio is the median of
/// the ratios of all rounds.
bool compare(const options& chosen, const comparison& one) {
  std::vector<double> plain, ours, ratios;
  for (std::uint64_t round = 0; round < chosen.rounds; ++round) {
    const auto first = static_cast<double>(measure(chosen, one.plain, one.percentile));
    const auto second = static_cast<double>(measure(chosen, one.verbspp, one.percentile));
    if (first == 0 || second == 0) return false;
    plain.push_back(first);
    ours.push_back(second);
    ratios.push_back(one.is_rate ? first / second : second / first);
  }
  const double c = median_of(plain);
  const double v = median_of(ours);
  const double ratio = median_of(ratios);
  if (one.is_rate)
    std::printf("%-8s %9.0f %9.0f echoes/s %6.2f  (%s)\n", one.name.data(), 1e9 / c, 1e9 / v, ratio,
                one.wanted);
  else
    std::printf("%-8s %9.2f %9.2f us       %6.2f  (%s)\n", one.name.data(), c / 1e3, v / 1e3, ratio,
                one.wanted);
  std::fflush(stdout);
  return true;
}

std::uint64_t number_in(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  options chosen;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--device") chosen.device = argv[i + 1];
    if (name == "--rounds") chosen.rounds = std::max<std::uint64_t>(number_in(argv[i + 1]), 1);
    if (name == "--messages") chosen.messages = std::max<std::uint64_t>(number_in(argv[i + 1]), 16);
    if (name == "--only") chosen.only = argv[i + 1];
  }
  std::printf("%-8s %9s %9s          %6s\n", "", "C", "verbspp", "ratio");
  std::fflush(stdout);
  for (const comparison& each : comparisons)
    if ((chosen.only.empty() || chosen.only == each.name) && !compare(chosen, each)) return 1;
  return 0;
}
