// SPDX-License-Identifier: Apache-2.0
// Calls that lend memory: the service reads it and writes to it until the call ends.

#include "../eager.hpp"
#include "raw_calls.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

constexpr access_flags readable = access::remote_read;
constexpr access_flags writable = access::remote_write;

/// Returns the sum of the lent bytes, which the service reads in parts of this size.
struct add_up {
  static constexpr std::uint16_t number = 11;
  static constexpr const char* name = "add_up";
  static constexpr access_flags lends = readable;
  using request = std::uint64_t;
  using answer = std::uint64_t;
};
/// Fills the lent memory with this byte. \returns the number of bytes
struct fill {
  static constexpr std::uint16_t number = 12;
  static constexpr const char* name = "fill";
  static constexpr access_flags lends = writable;
  using request = std::uint8_t;
  using answer = std::uint64_t;
};
/// Reads the lent memory, adds 1 to each byte, and writes it back. Returns the bytes of the
/// request.
struct increment {
  static constexpr std::uint16_t number = 13;
  static constexpr const char* name = "increment";
  static constexpr access_flags lends = readable | writable;
  using request = bytes;
  using answer = bytes;
};
/// A method whose calls the test answers itself.
struct keep {
  static constexpr std::uint16_t number = 14;
  static constexpr const char* name = "keep";
  static constexpr access_flags lends = readable | writable;
  using request = std::uint32_t;
  using answer = std::uint32_t;
};

// Methods that differ from those of the service.
struct fill_of_readable : fill {
  static constexpr access_flags lends = readable;
};
struct lending_sum : sum_method {
  static constexpr access_flags lends = writable;
};

using window_memory = registered_buffer<access::local_write | access::window_bind>;
using plain_memory = registered_buffer<>;

template <class Buffer>
[[nodiscard]] Buffer filled(const testbed& bed, std::size_t size, std::byte with) {
  Buffer made = must(Buffer::allocate(bed.domain, size));
  std::ranges::fill(made, with);
  return made;
}
[[nodiscard]] bool all_are(std::span<const std::byte> bytes, unsigned value) {
  return std::ranges::all_of(bytes,
                             [&](std::byte each) { return each == static_cast<std::byte>(value); });
}

/// A service for the methods above.
class lending_service {
 public:
  static constexpr std::size_t most = 1 << 20;

  explicit lending_service(const testbed& bed, unsigned threads = 1,
                           const service_options& options = running_service::default_options)
      : bed_(bed),
        scratch_(must(plain_memory::allocate(bed.domain, most))),
        served_(supported(
            service::create(
                bed.domain, options, handles<sum_method>([](const two_numbers& asked) {
                  return asked.first + asked.second;
                }),
                handles<add_up>([this](received_call<add_up> call) { answer(call); }),
                handles<fill>([this](received_call<fill> call) { answer(call); }),
                handles<increment>([this](received_call<increment> call) { answer(call); }),
                handles<keep>([this](received_call<keep> call) {
                  const std::lock_guard guard(lock_);
                  kept_.push_back(std::move(call));
                })),
            shared_receive_queues)) {
    for (unsigned i = 0; i < threads; ++i)
      threads_.emplace_back(
          [this](const std::stop_token& stop) { static_cast<void>(served_->serve(stop)); });
  }
  lending_service(const lending_service&) = delete;
  lending_service& operator=(const lending_service&) = delete;
  ~lending_service() { stop(); }

  void stop() {
    for (std::jthread& each : threads_) each.request_stop();
    threads_.clear();
  }
  void close() {
    stop();
    served_.reset();
  }
  [[nodiscard]] service& served() { return *served_; }

  [[nodiscard]] channel connect(prepared_channel end) {
    auto own = must(bed_.domain.build_channel().hub(served_->hub()).build());
    const endpoint of_client = end.endpoint();
    const endpoint of_service = own.endpoint();
    must(served_->add(must(std::move(own).handshake(of_client))));
    return must(std::move(end).handshake(of_service));
  }
  [[nodiscard]] caller call(const caller_options& options = {}) {
    auto end = must(bed_.domain.build_channel().waiting(running_service::brief_spin).build());
    caller calls = must(caller::open(end, options));
    must(calls.start<sum_method, add_up, fill, increment, keep>(connect(std::move(end)), patience));
    return calls;
  }
  /// Moves the calls of `keep` that have arrived to the end of this list.
  void move_kept_to(std::vector<received_call<keep>>& list) {
    const std::lock_guard guard(lock_);
    for (; !kept_.empty(); kept_.pop_front()) list.push_back(std::move(kept_.front()));
  }
  /// Waits for a call of `keep`, and takes it.
  [[nodiscard]] received_call<keep> take_kept() {
    std::optional<received_call<keep>> taken;
    wait_until(
        [&] {
          const std::lock_guard guard(lock_);
          if (kept_.empty()) return false;
          taken.emplace(std::move(kept_.front()));
          kept_.pop_front();
          return true;
        },
        "the call");
    return *std::move(taken);
  }

 private:
  void answer(received_call<add_up>& call) {
    const std::lock_guard guard(lock_);
    std::uint64_t sum = 0;
    for (std::uint64_t at = 0; at < call.lent_size();) {
      const std::uint64_t size = std::min(call.request(), call.lent_size() - at);
      const auto read = call.read(scratch_.scatter(0, size).value(), at, patience);
      if (read.has_error()) return call.refuse(read.error());
      for (std::uint64_t i = 0; i < size; ++i) sum += std::to_integer<std::uint64_t>(scratch_[i]);
      at += size;
    }
    static_cast<void>(call.answer(sum));
  }
  void answer(received_call<fill>& call) {
    const std::lock_guard guard(lock_);
    std::ranges::fill(scratch_, static_cast<std::byte>(call.request()));
    for (std::uint64_t at = 0; at < call.lent_size(); at += most) {
      const std::uint64_t size = std::min<std::uint64_t>(most, call.lent_size() - at);
      const auto written = call.write(scratch_.gather(0, size).value(), at, patience);
      if (written.has_error()) return call.refuse(written.error());
    }
    static_cast<void>(call.answer(call.lent_size()));
  }
  void answer(received_call<increment>& call) {
    const std::lock_guard guard(lock_);
    const std::size_t size = call.lent_size();
    auto done = call.read(scratch_.scatter(0, size).value());
    for (std::size_t i = 0; i < size; ++i)
      scratch_[i] = static_cast<std::byte>(std::to_integer<unsigned>(scratch_[i]) + 1);
    if (done.has_value()) done = call.write(scratch_.gather(0, size).value());
    if (done.has_error()) return call.refuse(done.error());
    static_cast<void>(call.answer(call.request()));
  }

  const testbed& bed_;
  std::mutex lock_{};
  plain_memory scratch_;
  std::deque<received_call<keep>> kept_{};
  std::optional<service> served_;
  std::vector<std::jthread> threads_{};
};

}  // namespace

TEST_CASE("a service reads and writes memory that a call lends") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call();
  SECTION("a buffer for windows") {
    auto memory = filled<window_memory>(bed, 100'000, std::byte{3});
    CHECK(must(calls.call<add_up>(4096, memory, patience)) == 300'000);
    CHECK(must(calls.call<fill>(7, memory, patience)) == 100'000);
    CHECK(all_are(memory, 7));
    const std::vector<std::byte> sent = pattern(100, 3);
    const received_bytes got = must(calls.call<increment>(sent, memory, patience));
    CHECK(std::ranges::equal(got.view(), sent));
    CHECK(all_are(memory, 8));
  }
  SECTION("a constant buffer, and one that is registered only for this side") {
    const auto constant = filled<window_memory>(bed, 1000, std::byte{1});
    CHECK(must(calls.call<add_up>(64, constant, patience)) == 1000);
    auto plain = filled<plain_memory>(bed, 5000, std::byte{2});
    CHECK(must(calls.call<add_up>(5000, plain, patience)) == 10'000);
    CHECK(must(calls.call<fill>(9, plain, patience)) == 5000);
    CHECK(all_are(plain, 9));
  }
  SECTION("a part of a region") {
    auto memory = filled<window_memory>(bed, 300, std::byte{1});
    const auto part = must(memory.region().window_part<writable>(100, 50));
    CHECK(must(calls.call<fill>(6, part, patience)) == 50);
    const std::span all(memory);
    CHECK(all_are(all.first(100), 1));
    CHECK(all_are(all.subspan(100, 50), 6));
    CHECK(all_are(all.subspan(150), 1));
  }
  SECTION("memory of the program") {
    std::vector<std::byte> own(70'000, std::byte{4});
    CHECK(must(calls.call<add_up>(1 << 16, own, patience)) == 280'000);
    CHECK(must(calls.call<fill>(5, std::span(own).first(69'999), patience)) == 69'999);
    CHECK(all_are(std::span(own).first(69'999), 5));
    CHECK(own.back() == std::byte{4});
    std::array<std::uint64_t, 4> numbers{};
    CHECK(must(calls.call<fill>(0xFF, numbers, patience)) == 32);
    CHECK(numbers[3] == UINT64_MAX);
  }
  SECTION("a buffer that was moved from") {
    auto memory = filled<window_memory>(bed, 10, std::byte{1});
    const auto taken = std::move(memory);
    CHECK(failure_of(calls.call<fill>(1, memory, patience)) == error_kind::invalid_input);
    auto plain = filled<plain_memory>(bed, 10, std::byte{1});
    const auto other = std::move(plain);
    CHECK(failure_of(calls.call<fill>(1, plain, patience)) == error_kind::invalid_input);
  }
  SECTION("nothing") {
    std::vector<std::byte> empty;
    CHECK(must(calls.call<add_up>(1, empty, patience)) == 0);
    CHECK(must(calls.call<fill>(1, empty, patience)) == 0);
    CHECK(calls.statistics().lanes == 0);
  }
  CHECK(must(calls.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
  CHECK(calls.statistics().lanes <= 1);
}

TEST_CASE("a call can lend memory of several MiB") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call();
  auto memory = filled<window_memory>(bed, (3 << 20) + 1, std::byte{1});
  CHECK(must(calls.call<add_up>(1 << 20, memory, patience)) == memory.size());
  CHECK(must(calls.call<fill>(2, memory, patience)) == memory.size());
  CHECK(all_are(memory, 2));
  CHECK(calls.statistics().lent_bytes == 2 * memory.size());
}

TEST_CASE("when the limit of a call is reached, its memory can no longer be accessed") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call();
  auto own = must(plain_memory::allocate(bed.domain, 256));
  std::ranges::fill(own, std::byte{99});
  const auto late = [&](auto& memory) {
    // With a lane that is connected already, the next call is sent whatever its limit is.
    must(calls.call<fill>(1, memory, patience));
    CHECK(failure_of(calls.call<keep>(1, memory, 10ms)) == error_kind::timed_out);
    received_call<keep> kept = serving.take_kept();
    CHECK(kept.lent_size() == 256);
    const error failed = failure_of(kept.write(own, 0, 2s));
    CHECK(failed != error_kind::invalid_input);
    CHECK(failure_of(kept.read(own, 0, 2s)) != error_kind::invalid_input);
    must(kept.answer(5));
    CHECK(std::ranges::all_of(memory, [](std::byte each) { return each == std::byte{1}; }));
    // The connection works, and so do the next calls that lend memory.
    CHECK(must(calls.call<sum_method>({.first = 2, .second = 2}, patience)) == 4);
    CHECK(must(calls.call<fill>(1, memory, patience)) == 256);
    CHECK(calls.link().is_connected());
  };
  SECTION("by a window") {
    auto memory = filled<window_memory>(bed, 256, std::byte{1});
    late(memory);
    CHECK(calls.statistics().lanes == 2);
    late(memory);
    CHECK(calls.statistics().lanes == 3);
  }
  SECTION("by a registration") {
    auto memory = filled<plain_memory>(bed, 256, std::byte{1});
    late(memory);
  }
}

TEST_CASE("a call with lent memory can be answered later, and in parts") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call({.lanes = 3});
  const auto memory = must(filled<window_memory>(bed, 3 * 64, std::byte{1}).share());
  std::vector<pending_call<keep>> handles;
  for (std::uint32_t i = 0; i < 3; ++i) {
    const auto post = [&] { return calls.post_call<keep>(i, must(memory.part(i * 64, 64))); };
    auto posted = post();
    wait_until(
        [&] {
          if (posted.has_error() && posted.error() == error_kind::would_block) posted = post();
          return posted.has_value() || posted.error() != error_kind::would_block;
        },
        "a lane");
    handles.push_back(must(std::move(posted)));
  }
  std::vector<received_call<keep>> kept;
  for (int i = 0; i < 3; ++i) kept.push_back(serving.take_kept());
  auto own = must(plain_memory::allocate(bed.domain, 32));
  for (std::size_t i = 3; i-- > 0;) {
    std::ranges::fill(own, static_cast<std::byte>(10 + i));
    must(kept[i].write(own, 32, patience));
    must(kept[i].read(own, 0, patience));
    CHECK(all_are(own, 1));
    must(kept[i].answer(static_cast<std::uint32_t>(100 + i)));
    CHECK(failure_of(kept[i].write(own)) == error_kind::invalid_input);
    CHECK(kept[i].lent_size() == 0);
    CHECK(must(handles[i].wait(patience)) == 100 + i);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const std::span part = std::span(memory).subspan(i * 64, 64);
    CHECK(all_are(part.first(32), 1));
    CHECK(all_are(part.subspan(32), static_cast<unsigned>(10 + i)));
  }
  CHECK(calls.statistics().lanes == 3);
}

TEST_CASE("accesses beyond the lent memory are refused, and do no harm") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call();
  const auto memory = must(filled<window_memory>(bed, 64, std::byte{1}).share());
  static_cast<void>(calls.post_call<keep>(1, memory));
  std::optional<pending_call<keep>> handle;
  wait_until(
      [&] {
        auto posted = calls.post_call<keep>(1, memory);
        if (posted.has_value()) handle.emplace(std::move(posted).value());
        return handle.has_value();
      },
      "a lane");
  received_call<keep> kept = serving.take_kept();
  auto own = must(plain_memory::allocate(bed.domain, 32));
  CHECK_THAT(failure_of(kept.read(own, 33)).message(),
             Catch::Contains("32 is above the limit of 31"));
  CHECK_THAT(failure_of(kept.write(own, 65)).message(), Catch::Contains("offset"));
  CHECK(failure_of(kept.write(own, UINT64_MAX)) == error_kind::invalid_input);
  must(kept.write(own, 32, patience));
  must(kept.answer(1));
  CHECK(must(handle->wait(patience)) == 1);
  CHECK(calls.statistics().lanes == 1);
}

TEST_CASE("a lane that failed at the service is replaced") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call();
  auto memory = filled<window_memory>(bed, 64, std::byte{1});
  must(calls.call<fill>(1, memory, patience));
  std::thread breaking([&] {
    received_call<keep> kept = serving.take_kept();
    // This element belongs to no region, so the request fails at the device of the service.
    const auto wrong = scatter_element::from_native({.addr = 8, .length = 8, .lkey = 0xBADBAD});
    kept.refuse(kept.read(scatter_list(wrong), 0, patience).error());
  });
  const error refused = failure_of(calls.call<keep>(1, memory, patience));
  breaking.join();
  CHECK(is_refusal(refused));
  CHECK(must(calls.call<fill>(4, memory, patience)) == 64);
  CHECK(all_are(memory, 4));
  CHECK(calls.statistics().lanes == 2);
}

TEST_CASE("a lane that failed at the caller is replaced") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call();
  auto memory = filled<window_memory>(bed, 64, std::byte{1});
  must(calls.call<fill>(1, memory, patience));
  // Memory without the right for windows, so the device refuses to bind one.
  auto plain = filled<plain_memory>(bed, 64, std::byte{1});
  const auto wrong = window_part<writable>::from_native(
      plain.native_handle(), reinterpret_cast<std::uintptr_t>(plain.data()), 64);
  const auto failed = calls.call<fill>(2, wrong, patience);
  CHECK(failed.has_error());
  CHECK(all_are(plain, 1));
  CHECK(must(calls.call<fill>(4, memory, patience)) == 64);
  CHECK(all_are(memory, 4));
}

TEST_CASE("destroying the handle of a call, or its caller, ends the access") {
  const testbed bed;
  lending_service serving(bed);
  std::optional<caller> calls(serving.call());
  auto memory = must(filled<window_memory>(bed, 64, std::byte{1}).share());
  std::optional<pending_call<keep>> handle;
  const auto post = [&] {
    wait_until(
        [&] {
          auto posted = calls->post_call<keep>(1, memory);
          if (posted.has_value()) handle.emplace(std::move(posted).value());
          return handle.has_value();
        },
        "a lane");
  };
  auto own = must(plain_memory::allocate(bed.domain, 64));
  std::ranges::fill(own, std::byte{9});
  post();
  received_call<keep> kept = serving.take_kept();
  SECTION("the handle") {
    handle.reset();
    CHECK(kept.write(own, 0, 2s).has_error());
    CHECK(all_are(memory, 1));
    post();
    received_call<keep> next = serving.take_kept();
    must(next.write(own, 0, patience));
    must(next.answer(3));
    CHECK(must(handle->wait(patience)) == 3);
    CHECK(all_are(memory, 9));
  }
  SECTION("the caller") {
    calls.reset();
    CHECK(kept.write(own, 0, 2s).has_error());
    CHECK(failure_of(handle->wait(patience)) == error_kind::not_connected);
    CHECK(all_are(memory, 1));
  }
  SECTION("the service") {
    serving.close();
    // A call may outlive its service, but the caller has noticed nothing yet.
    CHECK(failure_of(handle->wait(50ms)).kind() != error_kind::driver);
    CHECK(kept.write(own, 0, 2s).has_error());
    CHECK(all_are(memory, 1));
  }
}

TEST_CASE("a service limits the calls of a client that lend memory") {
  const testbed bed;
  SECTION("to none") {
    lending_service serving(bed, 1, {.clients = 8, .lanes = 0, .waiting = wait_mode::sleep()});
    caller calls = serving.call();
    std::vector<std::byte> own(10);
    const error refused = failure_of(calls.call<fill>(1, own, patience));
    CHECK(refused == error_kind::resource_exhausted);
    CHECK(must(calls.call<sum_method>({.first = 2, .second = 2}, patience)) == 4);
  }
  SECTION("to fewer than the caller wants") {
    lending_service serving(bed, 1, {.clients = 8, .lanes = 1, .waiting = wait_mode::sleep()});
    caller calls = serving.call({.lanes = 2});
    const auto memory = must(filled<window_memory>(bed, 64, std::byte{1}).share());
    std::vector<pending_call<keep>> handles;
    wait_until(
        [&] {
          auto posted = calls.post_call<keep>(1, memory);
          if (posted.has_value())
            handles.push_back(std::move(posted).value());
          else
            CHECK(posted.error() == error_kind::would_block);
          return calls.statistics().refusals == 1;
        },
        "the refusal");
    CHECK(handles.size() == 1);
    CHECK_THAT(failure_of(calls.post_call<keep>(1, memory)).message(),
               Catch::Contains("as both ends allow"));
    // A call that waits gets the lane of the one before.
    std::thread answering([&] { must(serving.take_kept().answer(3)); });
    CHECK(must(handles.front().wait(patience)) == 3);
    answering.join();
    std::vector<std::byte> own(10);
    CHECK(must(calls.call<fill>(1, own, patience)) == 10);
  }
}

TEST_CASE("both ends compare the memory that calls lend") {
  const testbed bed;
  lending_service serving(bed);
  const auto start = [&]<class Called>(const Called&, const caller_options& options = {}) {
    auto end = must(bed.domain.build_channel().waiting(running_service::brief_spin).build());
    caller calls = must(caller::open(end, options));
    return failure_of(calls.start<Called>(serving.connect(std::move(end)), patience));
  };
  const error one = start(fill_of_readable());
  CHECK(one == error_kind::mismatch);
  CHECK_THAT(one.message(), Catch::Contains("the memory that is lent by calls of method 12") &&
                                Catch::Contains("the caller has memory to read") &&
                                Catch::Contains("the service has memory to write"));
  CHECK_THAT(start(lending_sum()).message(), Catch::Contains("the service has none"));
  CHECK_THAT(start(fill(), {.message_size = 200}).message(), Catch::Contains("at least 376 bytes"));
}

TEST_CASE("a coroutine awaits calls that lend memory") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call();
  auto memory = must(filled<window_memory>(bed, 128, std::byte{1}).share());
  using routine = eager<result<void>>;
  const auto finish = [&](routine& running) {
    wait_until(
        [&] {
          calls.link().poll();
          return running.is_done();
        },
        "the coroutine");
  };
  SECTION("several at once, although there is one lane") {
    const auto talk = [&](unsigned first) -> routine {
      for (unsigned i = 0; i < 20; ++i) {
        VERBSPP_CO_TRY(part, memory.part(first, 16));
        VERBSPP_CO_TRY(count, co_await calls.async_call<fill>(static_cast<std::uint8_t>(first + i),
                                                              part, patience));
        if (count != 16 || !all_are(std::span(memory).subspan(first, 16), first + i))
          co_return error(error_kind::mismatch, "test", "wrong bytes");
        VERBSPP_CO_TRYV(co_await calls.async_call<sum_method>({.first = 1, .second = 2}));
      }
      co_return success();
    };
    std::vector<routine> talking;
    for (unsigned i = 0; i < 4; ++i) talking.push_back(talk(i * 16));
    for (routine& each : talking) finish(each);
    for (routine& each : talking) must(each.get());
    CHECK(calls.statistics().lanes == 1);
  }
  SECTION("a limit, and a coroutine that is destroyed") {
    const auto ask = [&](wait_limit until) -> routine {
      VERBSPP_CO_TRYV(co_await calls.async_call<keep>(1, memory, until));
      co_return success();
    };
    auto own = must(plain_memory::allocate(bed.domain, 128));
    std::ranges::fill(own, std::byte{9});
    must(calls.call<fill>(1, memory, patience));
    routine timed = ask(50ms);
    finish(timed);
    CHECK(failure_of(timed.get()) == error_kind::timed_out);
    std::optional<routine> destroyed(ask(patience));
    wait_until(
        [&] {
          calls.link().poll();
          return calls.statistics().lanes == 2;
        },
        "the lane");
    received_call<keep> first = serving.take_kept();
    received_call<keep> second = serving.take_kept();
    CHECK(first.write(own, 0, 2s).has_error());
    destroyed.reset();
    CHECK(second.write(own, 0, 2s).has_error());
    CHECK(all_are(memory, 1));
  }
}

TEST_CASE("a service survives wrong descriptions of lent memory and wrong requests for lanes") {
  const testbed bed;
  lending_service serving(bed);
  raw_end client(bed);
  client.connect(serving.connect(client.take_prepared()));
  const auto ask = [&](call_frame_kind kind, std::uint16_t method,
                       std::span<const std::byte> body) {
    CHECK(client.send(frame({.kind = kind, .method = method, .number = 77}, body)));
    const message answer = client.receive();
    const auto header = call_header::decode(answer.bytes()).value();
    CHECK(header.number == 77);
    if (header.kind != call_frame_kind::refusal) return std::string("answered");
    return text_of(answer.bytes().subspan(call_header::size + 1));
  };
  const auto lend = [&](std::uint16_t lane, const auto& memory) {
    std::vector<std::byte> body(33);
    std::ranges::copy(memory.encode(), body.begin());
    body[24] = static_cast<std::byte>(lane);
    body[25] = static_cast<std::byte>(lane >> 8);
    return body;
  };
  constexpr auto lending = call_frame_kind::lending_call;
  const remote_memory<writable> some(4096, 100, remote_key(std::uint32_t{5}));
  const remote_memory<writable> none(0, 0, remote_key(std::uint32_t{0}));
  CHECK_THAT(ask(lending, 12, {}), Catch::Contains("incomplete"));
  CHECK_THAT(ask(lending, 12, pattern(33, 1)), Catch::Contains("remote memory"));
  CHECK_THAT(ask(lending, 12, lend(0, some)), Catch::Contains("a lane that is not open"));
  CHECK_THAT(ask(lending, 12, lend(65'000, some)), Catch::Contains("a lane that is not open"));
  CHECK(ask(lending, 12, lend(UINT16_MAX, none)) == "answered");
  auto short_one = lend(UINT16_MAX, none);
  short_one.pop_back();
  CHECK_THAT(ask(lending, 12, short_one), Catch::Contains("0 bytes, but the service expects 1"));
  CHECK_THAT(ask(lending, 11, lend(UINT16_MAX, none)), Catch::Contains("did not grant"));
  CHECK_THAT(ask(lending, 1, lend(UINT16_MAX, none)), Catch::Contains("which the service can't"));
  CHECK_THAT(ask(call_frame_kind::call, 12, pattern(1, 1)), Catch::Contains("the service needs"));
  constexpr auto lane = call_frame_kind::lane_request;
  CHECK_THAT(ask(lane, 0, {}), Catch::Contains("malformed"));
  CHECK_THAT(ask(lane, 0, std::vector<std::byte>(376)), Catch::Contains("endpoint"));
  std::vector<std::byte> ninth(376);
  ninth[0] = std::byte{9};
  CHECK_THAT(ask(lane, 0, ninth), Catch::Contains("that many calls"));
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> body(random() % 400);
    for (std::byte& each : body) each = static_cast<std::byte>(random());
    static_cast<void>(ask(i % 2 == 0 ? lane : lending, 12, body));
  }
  CHECK(serving.served().statistics().removed_clients == 0);

  // Two calls over one lane, with a key that grants nothing: the requests of the service fail.
  std::vector<std::byte> comparison(6);
  const std::uint32_t size = detail::in_frame_order(std::uint32_t{1024});
  std::ranges::copy(bytes_in(size), comparison.begin() + 2);
  comparison[0] = std::byte{std::endian::native == std::endian::big};
  CHECK(ask(call_frame_kind::call, 0, comparison) == "answered");
  auto own_end = must(bed.domain.build_channel().build());
  std::vector<std::byte> body(376);
  std::ranges::copy(own_end.endpoint().encode(), body.begin() + 8);
  CHECK(ask(lane, 0, body) == "answered");
  for (int i = 0; i < 2; ++i) CHECK(ask(lending, 12, lend(0, some)) != "answered");
  CHECK(serving.served().clients() == 1);
  caller honest = serving.call();
  std::vector<std::byte> memory(10);
  CHECK(must(honest.call<fill>(1, memory, patience)) == 10);
}

namespace {

/// A client whose calls lend memory, with random limits.
class lending_client {
 public:
  lending_client(const testbed& bed, lending_service& serving, std::uint32_t seed)
      : random_(seed), calls_(serving.call({.in_flight = 4, .lanes = 2})) {
    for (lent& each : memory_) {
      each.buffer.emplace(must(filled<window_memory>(bed, size, std::byte{0}).share()));
      each.seen.resize(size);
    }
  }

  /// Makes a call. \returns the error if bytes are wrong, or the connection is broken
  std::string call() {
    lent& lends = memory_[random_() % memory_.size()];
    if (!std::ranges::equal(*lends.buffer, lends.seen)) return "bytes have arrived late";
    const auto value = static_cast<std::uint8_t>(random_());
    const std::chrono::microseconds limit(random_() % 1500);
    const bool is_kept = random_() % 3 == 0;
    std::optional<error> failed;
    if (is_kept) {
      const auto done = calls_.call<keep>(value, *lends.buffer, limit);
      if (done.has_error()) failed = done.error();
    } else {
      const auto done = calls_.call<fill>(value, *lends.buffer, limit);
      if (done.has_error()) failed = done.error();
    }
    std::ranges::copy(*lends.buffer, lends.seen.begin());
    if (!failed) return all_are(lends.seen, value) ? "" : "an answer came without its bytes";
    return *failed == error_kind::timed_out || is_refusal(*failed) ? "" : failed->message();
  }
  [[nodiscard]] caller_statistics statistics() const { return calls_.statistics(); }
  std::string finish() {
    for (const lent& each : memory_)
      if (!std::ranges::equal(*each.buffer, each.seen)) return "bytes have arrived late";
    const auto done = calls_.call<fill>(1, *memory_[0].buffer, patience);
    return done.has_error() ? done.error().message() : "";
  }

 private:
  static constexpr std::size_t size = 20'000;
  struct lent {
    std::optional<shared_buffer<window_memory::rights>> buffer{};
    std::vector<std::byte> seen{};
  };

  std::minstd_rand random_;
  caller calls_;
  std::array<lent, 3> memory_{};
};

}  // namespace

TEST_CASE("with random limits of calls that lend memory, no byte arrives late") {
  const testbed bed;
  lending_service serving(bed, 2);
  std::atomic<bool> is_over{false};
  // Answers the kept calls late; some of them have ended by then.
  std::thread answering([&, own = must(plain_memory::allocate(bed.domain, 20'000))]() mutable {
    std::minstd_rand random(3);
    std::vector<received_call<keep>> kept;
    while (!is_over) {
      serving.move_kept_to(kept);
      while (!kept.empty() && random() % 4 != 0) {
        std::ranges::fill(own, static_cast<std::byte>(kept.back().request()));
        const auto written = kept.back().write(own, 0, 50ms);
        if (written.has_value() && random() % 8 != 0) static_cast<void>(kept.back().answer(1));
        kept.pop_back();  // refuses the call if it was not answered
      }
      // steady: only varies the order of events
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
    }
  });
  constexpr std::uint32_t clients = 3;
  std::vector<std::string> failures(clients);
  std::atomic<std::uint64_t> ended_early{0};
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < clients; ++i)
    threads.emplace_back([&, i] {
      try {
        lending_client client(bed, serving, i + 1);
        for (std::uint32_t n = 0; n < repetitions(60) && failures[i].empty(); ++n)
          failures[i] = client.call();
        ended_early += client.statistics().given_up;
        if (failures[i].empty()) failures[i] = client.finish();
      } catch (const std::exception& thrown) {
        failures[i] = thrown.what();
      }
    });
  for (std::thread& each : threads) each.join();
  is_over = true;
  answering.join();
  for (const std::string& each : failures) CHECK(each == "");
  CHECK(ended_early > 0);
  CHECK(serving.served().statistics().removed_clients == 0);
}
