// SPDX-License-Identifier: Apache-2.0
// Calls that lend memory: the service reads it and writes to it until the call ends.

#include "../eager.hpp"
#include "failing_verb.hpp"
#include "faulty_codec.hpp"
#include "lending.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

/// A request whose codec calls `act`. In the tests, `act` uses the caller, which a codec must not
/// do.
struct busy_bytes {
  std::function<void()> act;
};
template <>
struct verbspp::codec<busy_bytes> {
  static constexpr std::uint32_t size = any_size;
  [[nodiscard]] static result<std::size_t> encode(const busy_bytes& from,
                                                  std::span<std::byte> into) noexcept {
    from.act();
    into[0] = std::byte{7};
    return std::size_t{1};
  }
  [[nodiscard]] static result<busy_bytes> decode(std::span<const std::byte> /*from*/) noexcept {
    return busy_bytes();
  }
};
/// Like `faulty_bytes`, but of a fixed size.
struct faulty_byte {
  codec_fault fault;
};
template <>
struct verbspp::codec<faulty_byte> {
  static constexpr std::uint32_t size = 1;
  [[nodiscard]] static result<std::size_t> encode(const faulty_byte& from,
                                                  std::span<std::byte> into) noexcept {
    return codec<faulty_bytes>::encode({from.fault}, into);
  }
  [[nodiscard]] static result<faulty_byte> decode(std::span<const std::byte> /*from*/) noexcept {
    return faulty_byte();
  }
};

namespace {

// Methods that differ from those of the service.
struct fill_of_readable : fill {
  static constexpr access_flags lends = readable;
};
struct lending_sum : sum_method {
  static constexpr access_flags lends = writable;
};

// The method `fill`, as far as the service can see.
struct faulty_fill : fill {
  using request = faulty_byte;
};
struct busy_fill : fill {
  using request = busy_bytes;
};

/// Checks that calls that cannot be encoded lend nothing. \param sent the number of bytes that the
/// other calls send \param lanes the number of lanes that those calls use
template <Method Called>
void check_faults(std::uint64_t sent, std::uint64_t lanes) {
  const testbed bed;
  lending_service serving(bed);
  auto [calls, link] = serving.prepare();
  must(calls.start<fill>(std::move(link), patience));
  const auto memory = must(filled<window_memory>(bed, 64, std::byte{1}).share());
  std::vector<std::byte> own(64, std::byte{1});
  must(calls.call<Called>({codec_fault::none}, memory, patience));
  for (int i = 0; i < 20; ++i) {
    CHECK(failure_of(calls.post_call<Called>({codec_fault::fails}, memory)) ==
          error_kind::not_found);
    CHECK(failure_of(calls.call<Called>({codec_fault::fails}, own, patience)) ==
          error_kind::not_found);
    CHECK(failure_of(calls.post_call<Called>({codec_fault::returns_too_large}, memory)) ==
          error_kind::invalid_input);
    CHECK(failure_of(calls.call<Called>({codec_fault::returns_too_large}, own, patience)) ==
          error_kind::invalid_input);
  }
  CHECK(all_are(memory, 7));
  CHECK(all_are(own, 1));
  must(calls.call<Called>({codec_fault::none}, memory, patience));
  must(calls.call<Called>({codec_fault::none}, own, patience));
  CHECK(all_are(own, 7));
  const caller_statistics counted = calls.statistics<fill>();
  CHECK(counted.calls == 3);
  CHECK(counted.lent_bytes == 3 * 64);
  CHECK(counted.sent_bytes == sent);
  CHECK(calls.statistics().lanes == lanes);
  // Each call that failed has released its reference to the shared memory.
  CHECK(memory.is_only());
}

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
  SECTION("a constant buffer, and one whose registration grants the peer no access") {
    const auto constant = filled<window_memory>(bed, 1000, std::byte{1});
    CHECK(must(calls.call<add_up>(64, constant, patience)) == 1000);
    auto plain = filled<plain_memory>(bed, 5000, std::byte{2});
    CHECK(must(calls.call<add_up>(5000, plain, patience)) == 10'000);
    CHECK(must(calls.call<fill>(9, plain, patience)) == 5000);
    CHECK(all_are(plain, 9));
  }
  SECTION("a part of a region") {
    if (memory_window<memory_window_type::type_2>::create(bed.domain).has_error())
      SKIP("the device has no memory windows of type 2");
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
  SECTION("no bytes") {
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

TEST_CASE("when the limit of a call is reached, the service can no longer access its memory") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call();
  auto own = must(plain_memory::allocate(bed.domain, 256));
  std::ranges::fill(own, std::byte{99});
  const auto late = [&](auto& memory) {
    // This call connects the lane, so the next call is sent even if its limit is short.
    must(calls.call<fill>(1, memory, patience));
    CHECK(failure_of(calls.call<keep>(1, memory, 10ms)) == error_kind::timed_out);
    received_call<keep> kept = serving.take_kept();
    CHECK(kept.lent_size() == 256);
    // The device refuses the access, so the write fails immediately, and not at its limit.
    CHECK_THAT(failure_of(kept.write(own, 0, patience)).message(),
               Catch::Contains("remote access error"));
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
  SECTION("by a copy") {
    std::vector<std::byte> memory(256, std::byte{1});
    late(memory);
    late(memory);
  }
  SECTION("by a registration") {
    calls = serving.call({.copied_size = 0});
    auto memory = filled<plain_memory>(bed, 256, std::byte{1});
    late(memory);
  }
}

TEST_CASE("a call can be answered later, and its lent memory can be accessed in parts") {
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

TEST_CASE("a call whose request cannot be encoded lends no memory, and keeps its lane") {
  SECTION("over a lane") { check_faults<faulty_fill_of_any_size>(0, 1); }
  SECTION("memory that would be sent") { check_faults<faulty_fill>(3 * 64, 0); }
}

TEST_CASE("a codec that uses the caller leaves no memory lent") {
  const testbed bed;
  lending_service serving(bed);
  auto [calls, link] = serving.prepare();
  must(calls.start<sum_method, fill>(std::move(link), patience));
  const auto memory = must(filled<window_memory>(bed, 64, std::byte{1}).share());
  const auto other = must(filled<window_memory>(bed, 64, std::byte{1}).share());
  std::vector<std::byte> large(2000);
  must(calls.call<fill>(1, large, patience));  // connects a lane
  std::vector<pending_call<fill>> fills;
  std::vector<pending_call<sum_method>> sums;
  std::function<void()> act;
  SECTION("for a call") {
    act = [&, &calls = calls] { sums.push_back(must(calls.post_call<sum_method>({1, 2}))); };
  }
  SECTION("for all calls that it may have in flight") {
    act = [&, &calls = calls] {
      for (;;) {
        auto posted = calls.post_call<sum_method>({1, 2});
        if (posted.has_error()) break;
        sums.push_back(std::move(posted).value());
      }
    };
  }
  SECTION("for a call that sends memory") {
    act = [&, &calls = calls] {
      auto posted = calls.post_call<fill>(3, other);
      if (posted.has_value()) fills.push_back(std::move(posted).value());
    };
  }
  SECTION("for a call that it does not send") {
    act = [&, &calls = calls] {
      CHECK(calls.post_call<faulty_fill_of_any_size>({codec_fault::fails}, other).has_error());
    };
  }
  for (int i = 0; i < 3; ++i) {
    // Whether such a call fails is not specified.
    auto posted = calls.post_call<busy_fill>({act}, memory);
    if (posted.has_value()) must(posted.value().wait(patience));
    for (auto& each : sums) CHECK(must(each.wait(patience)) == 3);
    for (auto& each : fills) must(each.wait(patience));
    sums.clear();
    fills.clear();
    std::vector<std::byte> own(2000);
    must(calls.call<fill>(4, own, patience));
    CHECK(all_are(own, 4));
  }
  CHECK(memory.is_only());
  CHECK(other.is_only());
  CHECK(calls.statistics().given_up == 0);
}

TEST_CASE("a lane that failed at the caller is replaced") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call();
  auto memory = filled<window_memory>(bed, 64, std::byte{1});
  must(calls.call<fill>(1, memory, patience));
  // This memory lacks access::window_bind, so the device refuses to bind a window to it.
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
    // A received call may outlive its service. The caller is not notified that the service was
    // closed.
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
    // A call that waits for a lane gets the lane of the previous call.
    std::thread answering([&] { must(serving.take_kept().answer(3)); });
    CHECK(must(handles.front().wait(patience)) == 3);
    answering.join();
    std::vector<std::byte> own(10);
    CHECK(must(calls.call<fill>(1, own, patience)) == 10);
  }
}

TEST_CASE("a service that cannot connect a lane for a while does not cost the caller other lanes") {
  const testbed bed;
  lending_service serving(bed);
  caller calls = serving.call({.lanes = 3});
  const auto memory = must(filled<window_memory>(bed, 64, std::byte{1}).share());
  const auto post = [&] {
    std::optional<result<pending_call<keep>>> posted;
    const std::uint64_t refusals = calls.statistics().refusals;
    wait_until(
        [&] {
          posted.emplace(calls.post_call<keep>(1, memory));
          return posted->has_value() || posted->error() != error_kind::would_block ||
                 calls.statistics().refusals != refusals;
        },
        "a lane");
    return std::move(*posted);
  };
  std::vector<pending_call<keep>> handles;
  for (int i = 0; i < 3; ++i) handles.push_back(must(post()));
  handles[1].give_up();
  {
    // The first queue pair belongs to the caller, the second one to the service.
    const failing_verb refused("ibv_create_qp", ENOMEM, convention::null, 2);
    CHECK(failure_of(post()) == error_kind::resource_exhausted);
    CHECK(refused.calls() == 1);
  }
  handles[1] = must(post());
  CHECK(calls.statistics().lanes == 4);
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
