// SPDX-License-Identifier: Apache-2.0
#include "calls.hpp"

#include "plain.h"
#include <verbspp/calls.hpp>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace bench {

namespace {

constexpr std::uint32_t in_flight = 16;
using payload = std::array<std::byte, 32>;

std::chrono::nanoseconds per_message(const side& mine, clock_type::time_point begin) {
  return (clock_type::now() - begin) / static_cast<std::int64_t>(mine.messages);
}

// Calls with verbspp.

struct echo_call {
  static constexpr std::uint16_t number = 1;
  static constexpr const char* name = "echo";
  using request = payload;
  using answer = payload;
};

/// Makes `count` calls, with up to `in_flight` of them in flight.
result<void> call_often(caller& calls, std::uint64_t count) {
  std::deque<pending_call<echo_call>> open;
  while (count != 0 || !open.empty()) {
    if (count != 0 && open.size() < in_flight) {
      VERBSPP_TRY(posted, calls.post_call<echo_call>({}));
      open.push_back(std::move(posted));
      --count;
      continue;
    }
    VERBSPP_TRYV(open.front().wait(patience));
    open.pop_front();
  }
  return success();
}

template <class... Called>
result<caller> connect_caller(const side& mine, const caller_options& options) {
  VERBSPP_TRY(prepared, mine.domain.build_channel()
                            .max_send_work_requests(in_flight)
                            .max_receive_work_requests(2 * in_flight)
                            .build());
  VERBSPP_TRY(calls, caller::open(prepared, options));
  VERBSPP_TRY(connected, connect(mine, std::move(prepared)));
  VERBSPP_TRYV(meet(mine.socket));
  VERBSPP_TRYV(calls.template start<Called...>(std::move(connected), patience));
  return calls;
}

/// Serves the other process until that process reports through the socket that it has finished.
template <class... Handled>
result<void> serve_calls(const side& mine, Handled... handled) {
  VERBSPP_TRY(serving, service::create(mine.domain, {.clients = 1, .in_flight = in_flight},
                                       std::move(handled)...));
  VERBSPP_TRY(
      prepared,
      mine.domain.build_channel().hub(serving.hub()).max_send_work_requests(in_flight).build());
  VERBSPP_TRY(connected, connect(mine, std::move(prepared)));
  VERBSPP_TRYV(serving.add(std::move(connected)));
  VERBSPP_TRYV(meet(mine.socket));
  char last = 0;
  while (::recv(mine.socket, &last, 1, MSG_DONTWAIT) < 0) VERBSPP_TRYV(serving.serve(10ms));
  return success();
}

result<void> finish(const side& mine) {
  errno = EPIPE;
  if (::send(mine.socket, "f", 1, MSG_NOSIGNAL) != 1)
    return error::from_errno(errno, "finish the measurement");
  return success();
}

result<nanoseconds_each> measure_calls(const side& mine) {
  VERBSPP_TRY(calls, connect_caller<echo_call>(mine, {.in_flight = in_flight}));
  VERBSPP_TRYV(call_often(calls, mine.messages / 10));
  const auto begin = clock_type::now();
  VERBSPP_TRYV(call_often(calls, mine.messages));
  const auto each = per_message(mine, begin);
  VERBSPP_TRYV(finish(mine));
  return nanoseconds_each{each.count()};
}

result<void> answer_calls(const side& mine) {
  return serve_calls(mine, handles<echo_call>([](const payload& asked) { return asked; }));
}

// The same service over TCP: each message is an 8-byte header, which contains a number and a
// length, and the payload.

struct frame {
  std::uint32_t number = 0;
  std::uint32_t length = 0;
  payload body{};
};

using socket_type = asio::ip::tcp::socket;

asio::awaitable<void> read_frame(socket_type& socket, frame& into) {
  constexpr std::size_t header = offsetof(frame, body);
  co_await asio::async_read(socket, asio::buffer(&into, header), asio::use_awaitable);
  co_await asio::async_read(socket, asio::buffer(into.body.data(), into.length),
                            asio::use_awaitable);
}

asio::awaitable<void> serve_tcp(socket_type socket, std::uint64_t count) {
  socket.set_option(asio::ip::tcp::no_delay(true));
  frame each;
  for (; count != 0; --count) {
    co_await read_frame(socket, each);
    co_await asio::async_write(socket, asio::buffer(&each, sizeof each), asio::use_awaitable);
  }
}

asio::awaitable<void> call_tcp(socket_type& socket, std::uint64_t count) {
  std::uint64_t sent = 0;
  frame own{.number = 0, .length = sizeof(payload)};
  for (; sent < in_flight && sent < count; ++sent)
    co_await asio::async_write(socket, asio::buffer(&own, sizeof own), asio::use_awaitable);
  frame answer;
  for (std::uint64_t taken = 0; taken < count; ++taken) {
    co_await read_frame(socket, answer);
    if (sent == count) continue;
    own.number = static_cast<std::uint32_t>(sent++);
    co_await asio::async_write(socket, asio::buffer(&own, sizeof own), asio::use_awaitable);
  }
}

// Round trips over TCP.

using echo_payload = std::array<std::byte, echo_bytes>;

asio::awaitable<void> ask_tcp(socket_type& socket, const side& mine, nanoseconds_each& times) {
  echo_payload question{};
  for (std::uint64_t i = 0; i < all_messages(mine); ++i) {
    const auto begin = clock_type::now();
    co_await asio::async_write(socket, asio::buffer(question), asio::use_awaitable);
    co_await asio::async_read(socket, asio::buffer(question), asio::use_awaitable);
    const std::chrono::nanoseconds length = clock_type::now() - begin;
    if (i >= mine.messages / 10) times.push_back(length.count());
  }
}

asio::awaitable<void> echo_tcp(socket_type socket, std::uint64_t count) {
  socket.set_option(asio::ip::tcp::no_delay(true));
  echo_payload each;
  for (; count != 0; --count) {
    co_await asio::async_read(socket, asio::buffer(each), asio::use_awaitable);
    co_await asio::async_write(socket, asio::buffer(each), asio::use_awaitable);
  }
}

/// Runs the coroutine. Returns an error if Asio has thrown an exception.
result<void> run(asio::io_context& context, asio::awaitable<void> routine) {
  std::exception_ptr failed;
  asio::co_spawn(context, std::move(routine),
                 [&](const std::exception_ptr& thrown) { failed = thrown; });
  context.restart();
  context.run();
  if (failed) return error(error_kind::driver, "exchange over TCP", "the connection has failed");
  return success();
}

result<void> connect_tcp(const side& mine, socket_type& socket) {
  VERBSPP_TRY(port, trade(mine.socket, std::array<std::byte, 2>{}));
  asio::error_code failed;
  socket.connect({asio::ip::address_v4::loopback(), std::bit_cast<std::uint16_t>(port)}, failed);
  if (failed) return error::from_errno(failed.value(), "connect");
  socket.set_option(asio::ip::tcp::no_delay(true));
  return success();
}

result<nanoseconds_each> measure_tcp(const side& mine) {
  asio::io_context context;
  socket_type socket(context);
  VERBSPP_TRYV(connect_tcp(mine, socket));
  VERBSPP_TRYV(run(context, call_tcp(socket, mine.messages / 10)));
  const auto begin = clock_type::now();
  VERBSPP_TRYV(run(context, call_tcp(socket, mine.messages)));
  return nanoseconds_each{per_message(mine, begin).count()};
}

result<nanoseconds_each> measure_tcp_echo(const side& mine) {
  asio::io_context context;
  socket_type socket(context);
  VERBSPP_TRYV(connect_tcp(mine, socket));
  nanoseconds_each times;
  times.reserve(mine.messages);
  VERBSPP_TRYV(run(context, ask_tcp(socket, mine, times)));
  return times;
}

template <asio::awaitable<void> (*Serve)(socket_type, std::uint64_t)>
result<void> answer_tcp(const side& mine) {
  asio::io_context context;
  asio::ip::tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
  const std::uint16_t port = acceptor.local_endpoint().port();
  VERBSPP_TRYV(trade(mine.socket, std::bit_cast<std::array<std::byte, 2>>(port)));
  socket_type socket(context);
  asio::error_code failed;
  acceptor.accept(socket, failed);
  if (failed) return error::from_errno(failed.value(), "accept");
  return run(context, Serve(std::move(socket), all_messages(mine)));
}

// 1 MiB at a time: memory that calls lend, and a stream of writes. Both write to the same number of
// places in turn, so that both use the caches alike.

constexpr std::size_t large = std::size_t{1} << 20;
constexpr std::uint32_t large_at_once = 4;

struct load_call {
  static constexpr std::uint16_t number = 2;
  static constexpr const char* name = "load";
  static constexpr access_flags lends = access::remote_write;
  using request = std::uint64_t;
  using answer = void;
};

std::uint64_t large_messages(const side& mine) {
  return std::max<std::uint64_t>(mine.messages / 20, 16);
}

result<nanoseconds_each> measure_lending(const side& mine) {
  VERBSPP_TRY(calls,
              connect_caller<load_call>(mine, {.in_flight = in_flight, .lanes = large_at_once}));
  using memory = registered_buffer<access::local_write | access::window_bind>;
  std::vector<shared_buffer<memory::rights>> buffers;
  for (std::uint32_t i = 0; i < large_at_once; ++i) {
    VERBSPP_TRY(own, memory::allocate(mine.domain, large));
    VERBSPP_TRYV(calls.call<load_call>(0, own, patience));
    VERBSPP_TRY(shared, std::move(own).share());
    buffers.push_back(shared);
  }
  const std::uint64_t count = large_messages(mine);
  std::array<pending_call<load_call>, large_at_once> open;
  const auto begin = clock_type::now();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t place = i % large_at_once;
    if (open[place].has_call()) VERBSPP_TRYV(open[place].wait(patience));
    for (;;) {
      auto posted = calls.post_call<load_call>(i, buffers[place]);
      if (posted.has_value()) {
        open[place] = std::move(posted).value();
        break;
      }
      if (posted.error() != error_kind::would_block) return posted.error();
    }
  }
  for (auto& each : open)
    if (each.has_call()) VERBSPP_TRYV(each.wait(patience));
  const auto length = clock_type::now() - begin;
  VERBSPP_TRYV(finish(mine));
  return nanoseconds_each{length.count() / static_cast<std::int64_t>(count)};
}

result<void> answer_lending(const side& mine) {
  VERBSPP_TRY(value, registered_buffer<>::allocate(mine.domain, large));
  return serve_calls(mine, handles<load_call>([&](received_call<load_call> call) {
                       if (const auto done = call.write(value); done.has_error())
                         return call.refuse(done.error());
                       static_cast<void>(call.answer());
                     }));
}

result<nanoseconds_each> measure_writes(const side& mine) {
  VERBSPP_TRY(prepared, mine.domain.build_channel().build());
  VERBSPP_TRY(link, connect(mine, std::move(prepared)));
  VERBSPP_TRY(bytes, trade(mine.socket, std::array<std::byte, 24>{}));
  VERBSPP_TRY(remote, remote_memory<access::remote_write>::decode(bytes));
  VERBSPP_TRY(value, registered_buffer<>::allocate(mine.domain, large));
  VERBSPP_TRY(all, value.gather());
  const std::uint64_t count = large_messages(mine);
  const auto begin = clock_type::now();
  const auto ended = link.stream(
      [&](channel_stream& writes) -> result<void> {
        for (std::uint64_t i = 0; i < count; ++i) {
          VERBSPP_TRY(place, remote.slice(i % large_at_once * large, large));
          VERBSPP_TRYV(writes.post_write({.elements = all, .remote = place}));
        }
        return success();
      },
      {.signal_every = large_at_once}, patience);
  if (!ended.has_value()) return error(error_kind::driver, "stream of writes", "it has failed");
  const auto length = clock_type::now() - begin;
  VERBSPP_TRYV(meet(mine.socket));
  return nanoseconds_each{length.count() / static_cast<std::int64_t>(count)};
}

result<void> answer_writes(const side& mine) {
  VERBSPP_TRY(prepared, mine.domain.build_channel().build());
  VERBSPP_TRY(link, connect(mine, std::move(prepared)));
  VERBSPP_TRY(memory, (registered_buffer < access::local_write |
                       access::remote_write > ::allocate(mine.domain, large_at_once * large)));
  VERBSPP_TRY(remote, memory.region().remote());
  VERBSPP_TRYV(trade(mine.socket, remote.encode()));
  return meet(mine.socket);
}

}  // namespace

const form calls_by_verbspp{measure_calls, answer_calls};
const form calls_by_tcp{measure_tcp, answer_tcp<serve_tcp>};
const form echo_by_tcp{measure_tcp_echo, answer_tcp<echo_tcp>};
const form lending_calls{measure_lending, answer_lending};
const form stream_of_writes{measure_writes, answer_writes};

}  // namespace bench
