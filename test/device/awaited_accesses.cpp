// SPDX-License-Identifier: Apache-2.0
// Accesses to lent memory that coroutines await.

#include "../eager.hpp"
#include "../socket_pair.hpp"
#include "event_loop.hpp"
#include "lending.hpp"
#include "raw_calls.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

using shared_memory = shared_buffer<access::local_write>;

shared_memory shared(const protection_domain& domain, std::size_t size) {
  return must(must(plain_memory::allocate(domain, size)).share());
}

/// The result of a coroutine, which other threads may read.
struct access_result {
  void set(const result<void>& done) {
    if (done.has_error()) {
      failed = done.error().message();
      kind = done.error().kind();
    }
    is_done = true;
  }
  void wait() const {
    wait_until([&] { return is_done.load(); }, "the coroutine");
  }

  std::atomic<bool> is_done{false};
  std::string failed{};
  std::optional<error_kind> kind{};
};

/// A coroutine that starts immediately, and destroys itself when it ends. The test may destroy it
/// earlier.
struct started {
  struct promise_type {
    started get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> coroutine;
};

started read_into(received_call<keep>& call, shared_memory into, std::uint64_t offset,
                  wait_limit limit, access_result& done) {
  done.set(co_await call.async_read(into, offset, limit));
}
/// Checks that an access of a client that has left fails at once.
void check_refused(received_call<keep>& call, const shared_memory& memory) {
  access_result late;
  read_into(call, memory, 0, wait_limit::forever(), late);
  REQUIRE(late.is_done);
  CHECK(late.kind == error_kind::not_connected);
}
started write_from(received_call<keep>& call, shared_memory from, std::uint64_t offset,
                   wait_limit limit, access_result& done) {
  done.set(co_await call.async_write(from, offset, limit));
}

/// Begins two accesses, and then awaits both of them.
started read_twice(received_call<keep>& call, shared_memory into, access_result& done) {
  auto first = call.async_read(into, 0, wait_limit::forever());
  auto second = call.async_read(into, 0, wait_limit::forever());
  static_cast<void>(co_await first);
  done.set(co_await second);
}
/// Destroys another coroutine when its own access has ended.
started read_and_destroy(received_call<keep>& call, shared_memory into, std::atomic<void*>& other,
                         access_result& done) {
  const result<void> read = co_await call.async_read(into, 0, wait_limit::forever());
  std::coroutine_handle<>::from_address(other).destroy();
  done.set(read);
}

/// Reads all of the lent memory, and then answers the call.
started answer_after_read(received_call<keep> call, shared_memory into, access_result& done) {
  const result<void> read = co_await call.async_read(into);
  if (read.has_error())
    call.refuse(read.error());
  else
    static_cast<void>(call.answer(call.request() + 1));
  done.set(read);
}

/// Reads the memory in parts whose size the request specifies, and answers with the sum of its
/// bytes.
started answer_call(received_call<add_up> call, protection_domain domain) {
  const auto buffer = shared(domain, std::max<std::size_t>(call.request(), 1));
  std::uint64_t sum = 0;
  for (std::uint64_t at = 0; at < call.lent_size();) {
    const std::uint64_t size = std::min(call.request(), call.lent_size() - at);
    const auto read = co_await call.async_read(must(buffer.part(0, size)), at, patience);
    if (read.has_error()) co_return call.refuse(read.error());
    for (std::uint64_t i = 0; i < size; ++i) sum += std::to_integer<std::uint64_t>(buffer[i]);
    at += size;
  }
  static_cast<void>(call.answer(sum));
}
/// Fills the lent memory in parts. Each access takes ownership of the coroutine's buffer, and
/// returns the buffer at its end.
started answer_call(received_call<fill> call, protection_domain domain) {
  constexpr std::size_t most = 100'000;
  auto buffer =
      must(plain_memory::allocate(domain, std::clamp<std::size_t>(call.lent_size(), 1, most)));
  std::ranges::fill(buffer, static_cast<std::byte>(call.request()));
  for (std::uint64_t at = 0; at < call.lent_size(); at += most) {
    const std::uint64_t left = call.lent_size() - at;
    if (left < buffer.size()) {
      buffer = must(plain_memory::allocate(domain, left));
      std::ranges::fill(buffer, static_cast<std::byte>(call.request()));
    }
    auto [written, returned] = co_await call.async_write(std::move(buffer), at, patience);
    if (written.has_error()) co_return call.refuse(error(written.error()));
    buffer = std::move(returned);
  }
  static_cast<void>(call.answer(call.lent_size()));
}
started answer_call(received_call<increment> call, protection_domain domain) {
  const auto buffer = shared(domain, std::max<std::size_t>(call.lent_size(), 1));
  const auto all = must(buffer.part(0, call.lent_size()));
  result<void> done = co_await call.async_read(all);
  for (std::size_t i = 0; i < call.lent_size(); ++i)
    buffer[i] = static_cast<std::byte>(std::to_integer<unsigned>(buffer[i]) + 1);
  if (done.has_value()) done = co_await call.async_write(all);
  if (done.has_error()) co_return call.refuse(done.error());
  static_cast<void>(call.answer(call.request()));
}

/// A service that accesses lent memory in coroutines.
class awaiting_service : public service_threads {
 public:
  explicit awaiting_service(const testbed& bed, unsigned threads = 1,
                            const service_options& options = default_options)
      : service_threads(bed), domain_(bed.domain) {
    serve(service::create(bed.domain, options, handles<sum_method>([](const two_numbers& asked) {
                            return asked.first + asked.second;
                          }),
                          handles<add_up>([this](received_call<add_up> call) {
                            answer_call(std::move(call), domain_);
                          }),
                          handles<fill>([this](received_call<fill> call) {
                            answer_call(std::move(call), domain_);
                          }),
                          handles<increment>([this](received_call<increment> call) {
                            answer_call(std::move(call), domain_);
                          }),
                          handles<keep>([this](received_call<keep> call) {
                            if (!reads_kept) return kept.put(std::move(call));
                            const auto memory = shared(domain_, call.lent_size());
                            answer_after_read(std::move(call), memory, read);
                          })),
          threads);
  }
  awaiting_service(const awaiting_service&) = delete;
  awaiting_service& operator=(const awaiting_service&) = delete;
  ~awaiting_service() { close(); }

  [[nodiscard]] caller call(caller_options options = {.sent_size = 0}) {
    auto [calls, link] = prepare(options);
    must(calls.start<sum_method, add_up, fill, increment, keep>(std::move(link), patience));
    return std::move(calls);
  }
  [[nodiscard]] received_call<keep> take_kept() { return std::move(kept.take(1)[0]); }

  kept_calls<keep> kept{};
  std::atomic<bool> reads_kept{false};  ///< if true, the handler of `keep` reads the memory
  access_result read{};                 ///< the result of that read

 private:
  protection_domain domain_;
};

constexpr std::chrono::seconds ack_timeout_of_service{1};

/// A client that lends memory over a lane, but does not connect its end of the lane until
/// `continue_lane`. Until then, the service's accesses cannot succeed.
class stalled_client {
 public:
  static constexpr std::size_t size = 1000;

  stalled_client(const testbed& bed, awaiting_service& serving, bool retransmits = false)
      : end_(bed),
        lane_(must(
            bed.domain.build_channel().access(access::remote_read | access::remote_write).build())),
        memory_(must(registered_buffer < access::local_write | access::remote_read |
                     access::remote_write > ::allocate(bed.domain, size))) {
    fill_with(memory_, 3);
    auto prepared = end_.take_prepared();
    auto own = retransmits ? must(bed.domain.build_channel()
                                      .hub(serving.served().hub())
                                      .ack_timeout(ack_timeout_of_service)
                                      .build())
                           : must(bed.domain.build_channel()
                                      .hub(serving.served().hub())
                                      .ack_timeout(ack_timeout::infinite())
                                      .build());
    const endpoint of_client = prepared.endpoint();
    const endpoint of_service = own.endpoint();
    channel of_service_end = must(std::move(own).handshake(of_client));
    of_service_end.watch(socket_[0], watch_for::hang_up);
    must(serving.served().add(std::move(of_service_end)));
    end_.connect(must(std::move(prepared).handshake(of_service)));

    std::vector<std::byte> comparison(6);
    const std::uint32_t largest = detail::in_frame_order(std::uint32_t{1024});
    std::ranges::copy(bytes_in(largest), comparison.begin() + 2);
    comparison[0] = std::byte{std::endian::native == std::endian::big};
    ask(call_frame_kind::call, 0, comparison);
    must_answer();
    std::vector<std::byte> body(detail::lane_request_size);
    std::ranges::copy(lane_->endpoint().encode(), body.begin() + 8);
    ask(call_frame_kind::lane_request, 0, body);
    const message answer = end_.receive();
    of_lane_.emplace(must(endpoint::decode(answer.bytes().subspan(call_header::size))));
  }

  /// Calls `keep`.
  void call() {
    std::vector<std::byte> body(detail::loan_size + sizeof(std::uint32_t));
    const auto lent = must(memory_.remote());
    std::ranges::copy(lent.encode(), body.begin());
    ask(call_frame_kind::lending_call, keep::number, body);
  }
  void continue_lane() { connected_.emplace(must(std::move(*lane_).handshake(*of_lane_))); }
  [[nodiscard]] call_frame_kind receive_answer() { return end_.receive_header().kind; }
  /// Closes the client's end of the socket. At the other end, which the service watches, this is a
  /// hang-up.
  void close_socket() { socket_.close(1); }
  /// Sends a message that makes the service remove the client.
  void violate_protocol() { end_.send({}); }

 private:
  static void fill_with(auto& memory, unsigned value) {
    std::ranges::fill(memory, static_cast<std::byte>(value));
  }
  void ask(call_frame_kind kind, std::uint16_t method, std::span<const std::byte> body) {
    CHECK(end_.send(frame({.kind = kind, .method = method, .number = 1}, body)));
  }
  void must_answer() { CHECK(end_.receive_header().kind == call_frame_kind::answer); }

  socket_pair socket_{};
  raw_end end_;
  std::optional<prepared_channel> lane_;
  std::optional<endpoint> of_lane_{};
  std::optional<channel> connected_{};
  registered_buffer<access::local_write | access::remote_read | access::remote_write> memory_;
};

}  // namespace

TEST_CASE("a client that stands still delays no other client of a service that awaits its memory") {
  const testbed bed;
  for (const wait_mode mode : all_modes) {
    awaiting_service serving(bed, 1, {.clients = 4, .waiting = mode});
    serving.reads_kept = true;
    caller other = serving.call();
    stalled_client stalled(bed, serving, true);
    stalled.call();
    for (std::int64_t i = 0; i < 100; ++i)
      CHECK(must(other.call<sum_method>({.first = i, .second = 1}, patience)) == i + 1);
    std::vector<std::byte> memory(300'000, std::byte{1});
    CHECK(must(other.call<add_up>(100'000, memory, patience)) == memory.size());
    stalled.continue_lane();
    CHECK(stalled.receive_answer() == call_frame_kind::answer);
    serving.read.wait();
    CHECK(serving.read.failed == "");
    serving.stop();
    CHECK(serving.failure() == "");
  }
}

TEST_CASE("coroutines await reads and writes of any size, in parts") {
  const testbed bed;
  for (const wait_mode mode : all_modes) {
    awaiting_service serving(bed, 1, {.clients = 4, .waiting = mode});
    // The first caller lends all memory over lanes. The second one sends small pieces of memory in
    // its calls.
    for (const std::uint32_t sent_size : {0U, 65'536U}) {
      caller calls = serving.call({.sent_size = sent_size});
      for (const std::size_t size : {0U, 1U, 700U, 99'999U, 3'000'001U}) {
        std::vector<std::byte> memory(size, std::byte{5});
        CHECK(must(calls.call<add_up>(std::max<std::size_t>(size / 7, 1), memory, patience)) ==
              5 * size);
        CHECK(must(calls.call<fill>(9, memory, patience)) == size);
        CHECK(all_are(memory, 9));
        CHECK(must(calls.call<increment>(bytes_of("text"), memory, patience)).size() == 4);
        CHECK(all_are(memory, 10));
      }
    }
  }
}

TEST_CASE("several accesses of one call are awaited at the same time") {
  const testbed bed;
  awaiting_service serving(bed);
  caller calls = serving.call();
  constexpr std::size_t parts = 20, size = 10'000;
  const auto memory = shared(bed.domain, parts * size);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i / size);
  auto calling =
      std::async(std::launch::async, [&] { return calls.call<keep>(1, memory, patience); });
  received_call<keep> call = serving.take_kept();
  std::vector<shared_memory> read;
  std::array<access_result, parts> done;
  // There are more accesses than places in the lane's send queue.
  for (std::size_t i = 0; i < parts; ++i) {
    read.push_back(shared(bed.domain, size));
    read_into(call, read[i], i * size, patience, done[i]);
  }
  for (std::size_t i = 0; i < parts; ++i) {
    done[i].wait();
    CHECK(done[i].failed == "");
    CHECK(all_are(read[i], static_cast<unsigned>(i)));
  }
  must(call.answer(2));
  CHECK(must(calling.get()) == 2);
  // The lane can be used again.
  CHECK(must(calls.call<fill>(7, memory, patience)) == memory.size());
  CHECK(calls.statistics().lanes == 1);
}

TEST_CASE("a coroutine that awaits an access may be destroyed, and its memory stays") {
  const testbed bed;
  for (const wait_mode mode : all_modes) {
    awaiting_service serving(bed, 1, {.clients = 4, .waiting = mode});
    stalled_client stalled(bed, serving, true);
    stalled.call();
    access_result unused;
    {
      received_call<keep> call = serving.take_kept();
      // The only handle to this memory is in the coroutine.
      const started reading =
          read_into(call, shared(bed.domain, stalled_client::size), 0, patience, unused);
      const started writing =
          write_from(call, shared(bed.domain, stalled_client::size), 0, patience, unused);
      reading.coroutine.destroy();
      writing.coroutine.destroy();
    }
    CHECK(stalled.receive_answer() == call_frame_kind::refusal);
    caller other = serving.call();
    CHECK(must(other.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
    stalled.continue_lane();
    std::vector<std::byte> memory(300'000, std::byte{1});
    CHECK(must(other.call<add_up>(1000, memory, patience)) == memory.size());
    CHECK(!unused.is_done);
  }
}

TEST_CASE("the limit of an awaited access breaks only the lane of its call") {
  const testbed bed;
  const wait_mode mode = all_modes[GENERATE(0U, 1U, 2U)];
  awaiting_service serving(bed, 1, {.clients = 4, .waiting = mode});
  stalled_client stalled(bed, serving);
  stalled.call();
  received_call<keep> call = serving.take_kept();
  const shared_memory memory = shared(bed.domain, stalled_client::size);
  access_result limited, stopped;
  std::stop_source stop;
  SECTION("a time") { read_into(call, memory, 0, short_limit, limited); }
  SECTION("a time, during another access") {
    read_into(call, memory, 0, patience, stopped);
    write_from(call, memory, 0, short_limit, limited);
    stopped.wait();
    CHECK(stopped.failed != "");
  }
  SECTION("a stop request") {
    read_into(call, memory, 0, stop.get_token(), limited);
    stop.request_stop();
  }
  limited.wait();
  REQUIRE(limited.kind);
  CHECK(is_one_of(*limited.kind, {error_kind::timed_out, error_kind::cancelled}));
  access_result late;
  read_into(call, memory, 0, patience, late);
  late.wait();
  CHECK(late.failed != "");
  must(call.answer(1));
  CHECK(stalled.receive_answer() == call_frame_kind::answer);
  CHECK(serving.served().clients() == 1);
}

TEST_CASE("awaited accesses fail when the client leaves, or the service is destroyed") {
  const testbed bed;
  const wait_mode mode = all_modes[GENERATE(0U, 1U, 2U)];
  awaiting_service serving(bed, 1, {.clients = 4, .waiting = mode});
  stalled_client stalled(bed, serving);
  stalled.call();
  received_call<keep> call = serving.take_kept();
  const shared_memory memory = shared(bed.domain, stalled_client::size);
  // If more than 1024 continuations are due, one poll of a channel may leave some of them for a
  // later poll.
  std::vector<access_result> done(GENERATE(6U, 1500U));
  for (access_result& each : done) read_into(call, memory, 0, wait_limit::forever(), each);
  SECTION("the client is removed") { stalled.violate_protocol(); }
  SECTION("the client's socket is closed") { stalled.close_socket(); }
  SECTION("the service is destroyed") { serving.close(); }
  SECTION("the service is destroyed after its threads have stopped") {
    serving.stop();
    access_result late;
    const started reading = read_into(call, memory, 0, wait_limit::forever(), late);
    CHECK(!late.is_done);
    reading.coroutine.destroy();
    serving.close();
  }
  for (access_result& each : done) {
    each.wait();
    INFO(each.failed);
    CHECK(each.kind == error_kind::not_connected);
  }
  check_refused(call, memory);
  static_cast<void>(call.answer(1));
}

TEST_CASE("the first awaited access fails if the client has left before") {
  const testbed bed;
  awaiting_service serving(bed);
  stalled_client stalled(bed, serving);
  stalled.call();
  received_call<keep> call = serving.take_kept();
  stalled.violate_protocol();
  wait_until([&] { return serving.served().clients() == 0; }, "the removal");
  check_refused(call, shared(bed.domain, stalled_client::size));
  static_cast<void>(call.answer(1));
}

TEST_CASE("when the service is destroyed, an access that blocks a thread continues") {
  const testbed bed;
  awaiting_service serving(bed);
  stalled_client stalled(bed, serving, true);
  stalled.call();
  received_call<keep> call = serving.take_kept();
  const shared_memory memory = shared(bed.domain, stalled_client::size);
  // Without threads, the service keeps the lane of this access in its list of lanes to poll.
  serving.stop();
  access_result unused;
  read_into(call, memory, 0, wait_limit::forever(), unused).coroutine.destroy();
  auto own = must(plain_memory::allocate(bed.domain, stalled_client::size));
  auto blocking = std::async(std::launch::async, [&] {
    for (;;) {
      const auto read = call.read(own, 0, patience);
      if (!read.has_error() || read.error() != error_kind::busy) return read;
    }
  });
  wait_until(
      [&] {
        access_result busy;
        const started reading = read_into(call, memory, 0, wait_limit::forever(), busy);
        if (!busy.is_done) reading.coroutine.destroy();
        return busy.is_done.load();
      },
      "the access that blocks");
  serving.close();
  stalled.continue_lane();
  must(blocking.get());
  CHECK(all_are(own, 3));
}

TEST_CASE("when the client leaves, a coroutine may destroy others of the client") {
  const testbed bed;
  awaiting_service serving(bed);
  stalled_client stalled(bed, serving);
  stalled.call();
  received_call<keep> call = serving.take_kept();
  const shared_memory memory = shared(bed.domain, stalled_client::size);
  access_result destroyed, done;
  std::atomic<void*> other{};
  read_and_destroy(call, memory, other, done);
  other = read_twice(call, memory, destroyed).coroutine.address();
  stalled.violate_protocol();
  done.wait();
  CHECK(done.kind == error_kind::not_connected);
  CHECK(!destroyed.is_done);
  static_cast<void>(call.answer(1));
}

TEST_CASE("an awaited access fails if the caller has ended its call") {
  const testbed bed;
  awaiting_service serving(bed);
  caller calls = serving.call();
  std::vector<std::byte> memory(1000);
  // This call connects the lane. Otherwise, the short limit of the next call could expire before
  // the lane is connected.
  REQUIRE(must(calls.call<fill>(7, memory, patience)) == memory.size());
  CHECK(failure_of(calls.call<keep>(1, memory, short_limit)) == error_kind::timed_out);
  received_call<keep> call = serving.take_kept();
  access_result done;
  read_into(call, shared(bed.domain, memory.size()), 0, patience, done);
  done.wait();
  CHECK(done.failed != "");
  must(call.answer(1));
  // The next call uses another lane.
  CHECK(must(calls.call<fill>(7, memory, patience)) == memory.size());
  CHECK(serving.served().clients() == 1);
}

TEST_CASE("wrong awaited accesses fail at once") {
  const testbed bed;
  awaiting_service serving(bed);
  stalled_client stalled(bed, serving);
  stalled.call();
  received_call<keep> call = serving.take_kept();
  const shared_memory memory = shared(bed.domain, stalled_client::size);
  const auto check = [&](const access_result& done, error_kind kind) {
    REQUIRE(done.is_done);
    CHECK(done.kind == kind);
  };
  access_result outside, moved, busy, answered, open;
  read_into(call, memory, 1, patience, outside);
  check(outside, error_kind::invalid_input);
  shared_memory empty = memory;
  const shared_memory taken = std::move(empty);
  // NOLINTNEXTLINE(bugprone-use-after-move): the test passes a handle that was moved from
  read_into(call, empty, 0, patience, moved);
  check(moved, error_kind::invalid_input);
  const started reading = read_into(call, memory, 0, wait_limit::forever(), open);
  CHECK(failure_of(call.read(taken, 0, patience)) == error_kind::busy);
  reading.coroutine.destroy();
  must(call.answer(1));
  read_into(call, memory, 0, patience, answered);
  check(answered, error_kind::invalid_input);
}

namespace {

using handled = eager<result<void>>;

/// Adds 1 to each byte, in parts. Reads into memory that it alone owns, and writes from shared
/// memory.
handled increment_in_parts(received_call<increment> call, protection_domain domain) {
  constexpr std::size_t size = 10'000;
  for (std::uint64_t at = 0; at + size <= call.lent_size(); at += size) {
    VERBSPP_CO_TRY(made, plain_memory::allocate(domain, size));
    auto [read, part] = co_await call.async_read(std::move(made), at);
    if (!read.has_value()) {
      call.refuse(error(read.error()));
      co_return error(read.error());
    }
    for (std::byte& each : part) each = static_cast<std::byte>(std::to_integer<unsigned>(each) + 1);
    VERBSPP_CO_TRY(kept, std::move(part).share());
    VERBSPP_CO_TRYV(co_await call.async_write(kept, at));
  }
  co_return call.answer(call.request());
}

/// A service without threads. The test polls it, and destroys the coroutines of its handlers.
class polled_service : public service_threads {
 public:
  polled_service(const testbed& bed, wait_mode waiting) : service_threads(bed) {
    serve(service::create(bed.domain, {.clients = 2, .waiting = waiting},
                          handles<increment>([this, &bed](received_call<increment> call) {
                            running.push_back(increment_in_parts(std::move(call), bed.domain));
                          })),
          0);
  }
  polled_service(const polled_service&) = delete;
  polled_service& operator=(const polled_service&) = delete;
  ~polled_service() { close(); }

  std::vector<handled> running{};
};

}  // namespace

TEST_CASE("coroutines that await accesses may be destroyed at any moment") {
  const testbed bed;
  const wait_mode mode = GENERATE(0, 1) == 0 ? wait_mode::sleep() : wait_mode::spin();
  polled_service serving(bed, mode);
  auto [calls, link] = serving.prepare({.lanes = 2, .sent_size = 0});
  std::atomic<bool> is_done{false};
  std::uint32_t answered = 0, dropped = 0;
  auto calling = std::async(std::launch::async, [&, &calls = calls, &link = link] {
    const auto call_often = [&]() -> result<void> {
      VERBSPP_TRYV(calls.start<increment>(std::move(link), patience));
      for (std::uint32_t i = 0; i < repetitions(100); ++i) {
        std::vector<std::byte> memory(50'000, static_cast<std::byte>(i));
        const auto done = calls.call<increment>(bytes_of("x"), memory, patience);
        if (done.has_error() && done.error() != error_kind::cancelled) return done.error();
        if (done.has_value() && !all_are(memory, (i + 1) % 256))
          return error(error_kind::mismatch, "test", "wrong bytes");
        ++(done.has_value() ? answered : dropped);
      }
      return success();
    };
    auto done = call_often();
    is_done = true;
    return done;
  });
  std::minstd_rand random(5);
  std::size_t left = 30;
  wait_until(
      [&] {
        must(serving.served().poll());
        if (serving.running.empty()) return is_done.load();
        handled& latest = serving.running.back();
        if (latest.is_done()) {
          must(latest.get());
          serving.running.clear();
        } else if (--left == 0) {
          left = random() % 60 + 1;
          serving.running.clear();
        }
        return is_done.load();
      },
      "the calls", 3 * patience);
  must(calling.get());
  CHECK(answered + dropped == repetitions(100));
}

TEST_CASE("a service with several threads awaits accesses for several clients at the same time") {
  const testbed bed;
  for (const wait_mode mode : {wait_mode::sleep(), wait_mode::spin()}) {
    awaiting_service serving(bed, 3, {.clients = 6, .waiting = mode});
    std::vector<caller> callers;
    for (int i = 0; i < 4; ++i) callers.push_back(serving.call());
    run_clients(4, [&](std::uint32_t number) -> std::string {
      std::vector<std::byte> memory(20'000 + number, std::byte{0});
      for (unsigned i = 1; i <= repetitions(30); ++i) {
        const auto done = callers[number].call<increment>(bytes_of("x"), memory, patience);
        if (done.has_error()) return done.error().message();
        if (!all_are(memory, i)) return "wrong bytes";
        const auto sum = callers[number].call<add_up>(3000, memory, patience);
        if (sum.has_error()) return sum.error().message();
        if (sum.value() != memory.size() * i) return "a wrong sum";
      }
      return "";
    });
    CHECK(serving.served().statistics().removed_clients == 0);
  }
}

TEST_CASE("an event loop resumes coroutines that await accesses") {
  const testbed bed;
  awaiting_service serving(bed, 0, {.clients = 4, .waiting = wait_mode::sleep()});
  auto [calls, link] = serving.prepare({.sent_size = 0}, wait_mode::sleep());
  std::atomic<bool> is_done{false};
  auto talking = std::async(std::launch::async, [&, &calls = calls, &link = link] {
    const auto talk = [&]() -> result<void> {
      VERBSPP_TRYV((calls.start<add_up, increment>(std::move(link), patience)));
      for (int i = 0; i < 5; ++i) {
        std::vector<std::byte> memory(300'000, std::byte{2});
        VERBSPP_TRY(sum, calls.call<add_up>(50'000, memory, patience));
        VERBSPP_TRYV(calls.call<increment>(bytes_of("x"), memory, patience));
        if (sum != 2 * memory.size() || !all_are(memory, 3))
          return error(error_kind::mismatch, "test", "wrong bytes");
      }
      return success();
    };
    auto done = talk();
    is_done = true;
    serving.served().hub().wake({.index = 0, .generation = 1});
    return done;
  });
  serve(serving.served(), [&] {
    must(serving.served().poll());
    return is_done.load();
  });
  must(talking.get());
}
