// SPDX-License-Identifier: Apache-2.0
// Executors, threads and allocators of operations with Asio, and waits for event sources.

#include "../device/sockets.hpp"
#include "net.hpp"
#include <verbspp/exchange.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>

using namespace verbspp;
using namespace verbspp::test;

namespace {

// An `asio_source` cannot wait for a descriptor to become writable. Therefore, it does not accept
// an exchange, which may have to wait for its socket to become writable.
template <class Source>
concept AsioWaitsFor = requires(net::any_io_executor executor, Source& source) {
  asio_source<Source>(executor, source);
};
static_assert(AsioWaitsFor<channel_hub>);
static_assert(EventSource<exchange_session<std::tuple<>, prepared_channel>> &&
              !AsioWaitsFor<exchange_session<std::tuple<>, prepared_channel>>);

constexpr int rounds = 200;

/// Sends messages, and counts the correct answers.
awaitable<void> ask(asio_channel& link, inbox& answers, const message_pool& pool, int& answered) {
  for (int i = 0; i < rounds; ++i) {
    auto request = must(pool.take());
    must(request.assign(std::as_bytes(std::span(&i, 1))));
    must(co_await link.async_send(std::move(request), use_awaitable));
    const auto answer = must(co_await link.async_wait(answers, use_awaitable));
    if (std::ranges::equal(answer.bytes(), std::as_bytes(std::span(&i, 1)))) ++answered;
  }
}
awaitable<void> echo(asio_channel& link, inbox& requests) {
  for (int i = 0; i < rounds; ++i) {
    auto request = must(co_await link.async_wait(requests, use_awaitable));
    must(co_await link.async_send(std::move(request), use_awaitable));
  }
}

struct counts {
  int allocated = 0;  ///< all allocations so far
  int in_use = 0;
};
/// An allocator that counts its allocations.
template <class Value>
struct counting_allocator {
  using value_type = Value;
  explicit counting_allocator(counts& into) : counted(&into) {}
  template <class Other>
  counting_allocator(const counting_allocator<Other>& other) : counted(other.counted) {}
  Value* allocate(std::size_t count) {
    ++counted->allocated;
    ++counted->in_use;
    return std::allocator<Value>().allocate(count);
  }
  void deallocate(Value* memory, std::size_t count) {
    --counted->in_use;
    std::allocator<Value>().deallocate(memory, count);
  }
  friend bool operator==(const counting_allocator&, const counting_allocator&) = default;
  counts* counted;
};
struct counted_handler {
  using allocator_type = counting_allocator<void>;
  [[nodiscard]] allocator_type get_allocator() const noexcept { return allocator_type(*counted); }
  void operator()(const transport_result<completed_work>& done) {
    must(done);
    // The memory of the operation was released before the handler was called.
    *in_use = counted->in_use;
  }
  counts* counted;
  int* in_use;
};

}  // namespace

TEST_CASE("the memory of an operation of Asio comes from the associated allocator") {
  const testbed bed;
  asio_pair ends(bed);
  const auto theirs = share_bytes(bed, 8);
  counts counted;
  int in_use = -1;
  ends.left.async_write(theirs, {.remote = must(theirs.remote())},
                        counted_handler{&counted, &in_use});
  CHECK(counted.in_use == 1);
  run(ends.context);
  CHECK(in_use == 0);
  CHECK(counted.in_use == 0);
  CHECK(counted.allocated >= 1);
}

TEST_CASE("a handler runs on its associated executor, which has outstanding work until then") {
  const testbed bed;
  asio_pair ends(bed);
  const auto theirs = share_bytes(bed, 8);
  net::io_context other;
  bool is_called = false;
  ends.left.async_write(theirs, {.remote = must(theirs.remote())},
                        bind_executor(other, [&](const auto& done) {
                          must(done);
                          CHECK(other.get_executor().running_in_this_thread());
                          is_called = true;
                        }));
  other.poll();
  CHECK_FALSE(other.stopped());
  run(ends.context);
  CHECK_FALSE(is_called);
  run(other);
  CHECK(is_called);
}

TEST_CASE("channels work on strands of a context that several threads run") {
  const testbed bed;
  net::io_context context;
  auto pair = connect_channels(short_channels(bed));
  asio_channel left(net::make_strand(context), std::move(pair.left));
  asio_channel right(net::make_strand(context), std::move(pair.right));
  const auto pool = must(message_pool::create(bed.domain, 128, 64));
  inbox answers = must(inbox::open(left.link(), pool));
  inbox requests = must(inbox::open(right.link(), pool));
  int answered = 0;
  spawn(left.get_executor(), ask(left, answers, pool, answered));
  spawn(right.get_executor(), echo(right, requests));
  std::atomic<int> unfinished = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      context.run_for(patience);
      if (!context.stopped()) ++unfinished;
    });
  for (std::thread& each : threads) each.join();
  CHECK(unfinished == 0);
  CHECK(answered == rounds);
}

TEST_CASE("two contexts in two threads each serve a channel") {
  const testbed bed;
  auto pair = connect_channels(short_channels(bed));
  const auto pool = must(message_pool::create(bed.domain, 128, 64));
  int answered = 0;
  std::array<bool, 2> has_ended{};
  const auto serve = [&](channel link, bool asks) {
    net::io_context context(1);
    asio_channel end(context, std::move(link));
    inbox messages = must(inbox::open(end.link(), pool));
    if (asks)
      spawn(context, ask(end, messages, pool, answered));
    else
      spawn(context, echo(end, messages));
    context.run_for(patience);
    has_ended[asks ? 1 : 0] = context.stopped();
    return std::move(end.link());
  };
  channel right;
  std::thread other([&] { right = serve(std::move(pair.right), false); });
  const channel left = serve(std::move(pair.left), true);
  other.join();
  CHECK(has_ended == std::array{true, true});
  CHECK(answered == rounds);
}

TEST_CASE("two contexts in two threads share a hub") {
  const testbed bed;
  const auto pool = must(message_pool::create(bed.domain, 128, 64));
  auto hub = must(channel_hub::create(bed.domain, {.waiting = wait_mode::sleep()}));
  auto pair = connect_channels(short_channels(bed).hub(hub));
  int answered = 0;
  std::array<bool, 2> has_ended{};
  // Each thread may find a completion of the other thread's channel. It then makes the other thread
  // poll that channel.
  struct end {
    end(channel connected) : link(context, std::move(connected)) {}
    net::io_context context{1};
    asio_channel link;
    channel_id id = link.link().id();
  };
  std::array<std::unique_ptr<end>, 2> ends{std::make_unique<end>(std::move(pair.left)),
                                           std::make_unique<end>(std::move(pair.right))};
  std::array inboxes{must(inbox::open(ends[0]->link.link(), pool)),
                     must(inbox::open(ends[1]->link.link(), pool))};
  const auto wait_for_hub = [&](end& mine, bool& is_done) -> awaitable<void> {
    asio_source events(mine.context.get_executor(), hub);
    std::array<arrival, 4> slots;
    while (!is_done) {
      must(co_await events.async_wait(use_awaitable));
      for (const arrival& each : must(hub.poll(slots)))
        for (const auto& other : ends)
          if (each.source == other->id)
            net::dispatch(other->context, [&link = other->link] { link.poll(); });
    }
  };
  std::array<bool, 2> is_done{};
  const auto serve = [&](std::size_t index) {
    end& mine = *ends[index];
    spawn(mine.context, [&, index]() -> awaitable<void> {
      if (index == 0)
        co_await ask(mine.link, inboxes[0], pool, answered);
      else
        co_await echo(mine.link, inboxes[1]);
      is_done[index] = true;
      mine.context.stop();
    });
    spawn(mine.context, wait_for_hub(mine, is_done[index]));
    mine.context.run_for(patience);
    has_ended[index] = is_done[index];
  };
  std::thread other([&] { serve(1); });
  serve(0);
  other.join();
  CHECK(has_ended == std::array{true, true});
  CHECK(answered == rounds);
}

TEST_CASE("a context waits for an acceptor") {
  const testbed bed;
  const auto prepare = [&]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t>> {
    VERBSPP_TRY(prepared, bed.domain.build_channel().build());
    return exchange_offer{std::move(prepared), std::uint32_t{7}};
  };
  tcp_listener listener = must(tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  auto acceptor = must(accept_exchanges<std::uint32_t>(std::move(listener), prepare));
  net::io_context context;
  std::optional<std::uint32_t> theirs;
  spawn(context, [&]() -> awaitable<void> {
    asio_source events(context.get_executor(), acceptor);
    while (!theirs) {
      must(co_await events.async_wait(use_awaitable));
      must(acceptor.poll());
      if (const auto client = acceptor.take()) theirs = client->met.theirs;
    }
  });
  std::thread client([&] {
    auto prepared = must(bed.domain.build_channel().build());
    auto socket = must(tcp_socket::connect("127.0.0.1", port, patience));
    static_cast<void>(must(exchange<std::uint32_t>(socket.descriptor(), std::move(prepared),
                                                   std::uint32_t{8}, patience)));
  });
  run(context);
  client.join();
  CHECK(theirs == 8U);
}

TEST_CASE("a wait for an event source ends at its deadline and when it is cancelled") {
  const testbed bed;
  auto pair = connect_channels(short_channels(bed));
  net::io_context context;
  asio_source events(context.get_executor(), pair.left);
  std::optional<result<void>> cancelled;
  events.async_wait([&](const result<void>& done) { cancelled = done; });
  context.poll();
  CHECK_FALSE(cancelled.has_value());
  events.cancel();
  run(context);
  CHECK(failure_of(*cancelled) == error_kind::cancelled);
  // Nothing arrives, but the continuation of this receive has a limit.
  const auto into = share_bytes(bed, 8);
  auto receiving = must(pair.left.post_receive(into));
  const auto before = clock::now();
  continuation next([](continuation&) noexcept {}, wait_limit(short_limit));
  REQUIRE(receiving.then(next));
  std::optional<result<void>> due;
  events.async_wait([&](const result<void>& done) { due = done; });
  run(context);
  must(*due);
  CHECK(clock::now() - before >= short_limit);
  pair.left.poll();
  CHECK_FALSE(pair.left.is_connected());
}

TEST_CASE("cancelling an asio_source that was moved from does nothing") {
  const testbed bed;
  auto pair = connect_channels(short_channels(bed));
  net::io_context context;
  asio_source events(context.get_executor(), pair.left);
  std::optional<result<void>> ended;
  events.async_wait([&](const result<void>& done) { ended = done; });
  asio_source owner = std::move(events);
  events.cancel();  // NOLINT(bugprone-use-after-move): this is the subject of the test
  context.poll();
  CHECK_FALSE(ended.has_value());
  owner.cancel();
  run(context);
  CHECK(failure_of(*ended) == error_kind::cancelled);
}
