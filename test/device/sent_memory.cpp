// SPDX-License-Identifier: Apache-2.0
// Calls that lend so little memory that its bytes are sent with the messages, without a lane.

#include "../eager.hpp"
#include "failing_verb.hpp"
#include "lending.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

// The sizes of the largest memory that fits into messages of 1,024 bytes. The description of the
// memory takes 32 bytes, and the request or answer takes 8. If the service may write, there is also
// a bit for each byte of the memory.
constexpr std::size_t most_to_read = 1024 - 32 - 8;
constexpr std::size_t most_to_write = 874;
static_assert(32 + 8 + most_to_write + (most_to_write + 7) / 8 == 1024);

/// A part of the lent memory to which a handler writes.
struct piece {
  std::size_t offset;
  std::size_t length;
};

/// A service, and a caller that sends its lent memory in messages.
struct sending_calls {
  explicit sending_calls(const caller_options& options = {}) : calls(serving.call_with(options)) {}

  /// Writes to pieces of the lent memory, with a different value for each piece.
  template <Method Called>
  void write(received_call<Called>& call, std::span<const piece> pieces) const {
    unsigned value = 100;
    for (const piece& each : pieces) {
      auto own =
          filled<plain_memory>(bed, std::max<std::size_t>(each.length, 1), std::byte(value++));
      must(call.write(must(own.gather(0, each.length)), each.offset, patience));
    }
  }
  /// Returns the bytes that the memory has after these writes if all of its bytes were 1 before.
  [[nodiscard]] static std::vector<std::byte> after(std::size_t size,
                                                    std::span<const piece> pieces) {
    std::vector<std::byte> made(size, std::byte{1});
    unsigned value = 100;
    for (const piece& each : pieces)
      std::ranges::fill(std::span(made).subspan(each.offset, each.length), std::byte(value++));
    return made;
  }

  const testbed bed{};
  lending_service serving{bed};
  caller calls;
};

/// Calls the method with memory of this size, whose bytes are 1. \returns the bytes of the memory
/// after the call
template <Method Called>
std::vector<std::byte> written_by(sending_calls& all, kept_calls<Called>& kept, std::size_t size,
                                  std::span<const piece> pieces) {
  std::vector<std::byte> own(size, std::byte{1});
  std::thread serving([&] {
    auto call = std::move(kept.take(1)[0]);
    all.write(call, pieces);
    must(call.answer(17));
  });
  CHECK(must(all.calls.template call<Called>(3, own, patience)) == 17);
  serving.join();
  return own;
}

}  // namespace

TEST_CASE("small lent memory is sent with the messages, and needs no lane") {
  sending_calls all;
  caller& calls = all.calls;
  SECTION("a buffer for windows, and a part of one") {
    auto memory = filled<window_memory>(all.bed, 500, std::byte{3});
    CHECK(must(calls.call<add_up>(64, memory, patience)) == 1500);
    CHECK(must(calls.call<fill>(7, memory, patience)) == 500);
    CHECK(all_are(memory, 7));
    auto part = must(std::move(memory).part(10, 20));
    CHECK(must(calls.call<fill>(8, part, patience)) == 20);
    CHECK(all_are(part, 8));
    CHECK(calls.statistics().sent_bytes == 1020);
  }
  SECTION("a constant buffer") {
    const auto memory = filled<window_memory>(all.bed, 500, std::byte{3});
    CHECK(must(calls.call<add_up>(64, memory, patience)) == 1500);
  }
  SECTION("a buffer whose registration grants the peer no access") {
    auto memory = filled<plain_memory>(all.bed, 500, std::byte{2});
    CHECK(must(calls.call<add_up>(500, memory, patience)) == 1000);
    CHECK(must(calls.call<fill>(9, memory, patience)) == 500);
    CHECK(all_are(memory, 9));
  }
  SECTION("memory of the program") {
    std::vector<std::byte> own(300, std::byte{4});
    CHECK(must(calls.call<add_up>(7, own, patience)) == 1200);
    CHECK(must(calls.call<fill>(5, std::span(own).first(299), patience)) == 299);
    CHECK(all_are(std::span(own).first(299), 5));
    CHECK(own.back() == std::byte{4});
    std::array<std::uint64_t, 4> numbers{};
    CHECK(must(calls.call<fill>(0xFF, numbers, patience)) == 32);
    CHECK(numbers[3] == UINT64_MAX);
  }
  SECTION("one byte, and no bytes") {
    std::vector<std::byte> own(1, std::byte{4});
    CHECK(must(calls.call<add_up>(7, own, patience)) == 4);
    CHECK(must(calls.call<fill>(5, own, patience)) == 1);
    CHECK(own[0] == std::byte{5});
    own.clear();
    CHECK(must(calls.call<add_up>(7, own, patience)) == 0);
    CHECK(must(calls.call<fill>(5, own, patience)) == 0);
    CHECK(calls.statistics().sent_bytes == 2);
  }
  CHECK(calls.statistics().lanes == 0);
  CHECK(calls.statistics().sent_bytes == calls.statistics().lent_bytes);
  std::ostringstream text;
  text << calls;
  CHECK_THAT(text.str(), Catch::Contains("(sent: "));
}

TEST_CASE("memory is sent if it fits a message, and otherwise lent over a lane") {
  sending_calls all;
  std::vector<std::byte> own(most_to_read, std::byte{1});
  CHECK(must(all.calls.call<add_up>(4096, own, patience)) == own.size());
  CHECK(all.calls.statistics().sent_bytes == own.size());
  own.resize(most_to_write);
  CHECK(must(all.calls.call<fill>(2, own, patience)) == own.size());
  CHECK(all_are(own, 2));
  const auto sent = all.calls.statistics().sent_bytes;
  CHECK(sent == most_to_read + most_to_write);
  CHECK(all.calls.statistics().lanes == 0);
  own.push_back({});
  CHECK(must(all.calls.call<fill>(1, own, patience)) == own.size());
  CHECK(all_are(own, 1));
  own.resize(most_to_read + 1, std::byte{1});
  CHECK(must(all.calls.call<add_up>(4096, own, patience)) == own.size());
  CHECK(all.calls.statistics().sent_bytes == sent);
  CHECK(all.calls.statistics().lanes == 1);

  // The answer of this method can have any size, so it may need the whole message. Even small
  // memory is therefore lent over a lane.
  own.resize(10);
  const received_bytes answer =
      must(all.calls.call<increment>(std::vector<std::byte>(992), own, patience));
  CHECK(answer.size() == 992);
  CHECK(all_are(own, 2));
  CHECK(all.calls.statistics().sent_bytes == sent);
}

TEST_CASE("a call that needs a lane is refused if messages have no room for the request for one") {
  const testbed bed;
  lending_service serving(bed);
  auto [calls, link] = serving.prepare({.message_size = 200});
  std::vector<std::byte> own(300, std::byte{1});
  CHECK_THAT(failure_of(calls.call<fill>(7, own, patience)).message(),
             Catch::Contains("call caller::start first"));
  must(calls.start<sum_method>(std::move(link), patience));
  const error refused = failure_of(calls.call<fill>(7, own, patience));
  CHECK(refused == error_kind::invalid_input);
  CHECK_THAT(refused.message(), Catch::Contains("use at least 376 bytes"));
  CHECK(all_are(own, 1));
  CHECK(must(calls.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
}

TEST_CASE("the smaller of both ends' limits applies to memory that is sent") {
  const testbed bed;
  const auto sends = [&](const service_options& of_service, const caller_options& of_caller,
                         std::size_t size) {
    lending_service serving(bed, 1, of_service);
    caller calls = serving.call_with(of_caller);
    std::vector<std::byte> own(size);
    CHECK(must(calls.call<fill>(3, own, patience)) == size);
    CHECK(all_are(own, 3));
    return calls.statistics().sent_bytes != 0;
  };
  const service_options usual = lending_service::default_options;
  auto large = usual, none = usual, few = usual;
  large.message_size = 4096;
  none.sent_size = 0;
  few.sent_size = 100;
  CHECK(sends(large, {.message_size = 8192}, 3000));
  CHECK_FALSE(sends(large, {}, 3000));
  CHECK_FALSE(sends(usual, {.message_size = 8192}, 3000));
  CHECK_FALSE(sends(none, {}, 1));
  CHECK_FALSE(sends(usual, {.sent_size = 0}, 1));
  CHECK(sends(few, {}, 100));
  CHECK_FALSE(sends(few, {}, 101));
  CHECK_FALSE(sends(usual, {.sent_size = 100}, 101));
}

TEST_CASE("memory that is sent needs no memory window") {
  sending_calls all;
  const failing_operation refused(all.bed.context.native_handle()->ops.alloc_mw, EOPNOTSUPP,
                                  convention::null);
  auto memory = filled<window_memory>(all.bed, 100, std::byte{3});
  CHECK(must(all.calls.call<fill>(7, memory, patience)) == 100);
  CHECK(all_are(memory, 7));
  CHECK(refused.calls() == 0);
}

TEST_CASE("in memory that is sent, only the bytes that the handler writes change") {
  sending_calls all;
  const std::vector<std::vector<piece>> cases{
      {},
      {{0, 0}},
      {{0, 100}},
      {{0, 50}, {50, 50}},
      {{20, 10}},
      {{99, 1}},
      {{0, 10}, {20, 10}},
      {{20, 10}, {0, 10}},
      {{10, 20}, {15, 30}, {5, 10}},
      {{0, 30}, {10, 5}},
      {{1, 1}, {3, 1}, {5, 1}, {7, 2}, {16, 8}, {95, 5}},
  };
  for (const auto& pieces : cases) {
    const auto wanted = sending_calls::after(100, pieces);
    CHECK(written_by<keep>(all, all.serving.kept, 100, pieces) == wanted);
    CHECK(written_by<keep_to_write>(all, all.serving.kept_to_write, 100, pieces) == wanted);
  }
  // Random pieces, and memory of the largest size.
  std::minstd_rand random(11);
  for (std::uint32_t n = 0; n < repetitions(50); ++n) {
    const std::size_t size = n % 2 == 0 ? most_to_write : 1 + random() % most_to_write;
    std::vector<piece> pieces(random() % 6);
    for (piece& each : pieces) {
      each.offset = random() % size;
      each.length = random() % (size - each.offset + 1);
    }
    const auto wanted = sending_calls::after(size, pieces);
    CHECK(written_by<keep>(all, all.serving.kept, size, pieces) == wanted);
    CHECK(written_by<keep_to_write>(all, all.serving.kept_to_write, size, pieces) == wanted);
  }
  CHECK(all.calls.statistics().lanes == 0);
}

TEST_CASE(
    "a handler reads the bytes that it has written to memory that is sent, and errors do no harm") {
  sending_calls all;
  std::vector<std::byte> own(64, std::byte{1});
  std::thread serving([&] {
    received_call<keep> call = all.serving.take_kept();
    CHECK(call.request() == 5);
    CHECK(call.lent_size() == 64);
    auto part = filled<plain_memory>(all.bed, 32, std::byte{9});
    CHECK_THAT(failure_of(call.read(part, 33)).message(),
               Catch::Contains("32 is above the limit of 31"));
    CHECK_THAT(failure_of(call.write(part, 65)).message(), Catch::Contains("offset"));
    CHECK(failure_of(call.write(part, UINT64_MAX)) == error_kind::invalid_input);
    must(call.write(part, 16));
    std::ranges::fill(part, std::byte{0});
    must(call.read(part, 0));
    CHECK(all_are(std::span(part).first(16), 1));
    CHECK(all_are(std::span(part).subspan(16), 9));
    // These calls also accept an inline payload, and a list of several elements.
    must(call.write(inline_payload("abc"), 61));
    const std::array<scatter_element, 2> both{must(part.scatter(0, 1)), must(part.scatter(31, 1))};
    must(call.read(scatter_list(both), 62));
    CHECK(part[0] == std::byte{'b'});
    CHECK(part[31] == std::byte{'c'});
    CHECK(call.request() == 5);
    must(call.answer(6));
    CHECK(failure_of(call.write(part)) == error_kind::invalid_input);
    CHECK(call.lent_size() == 0);
  });
  const std::uint32_t answer = must(all.calls.call<keep>(5, own, patience));
  serving.join();
  CHECK(answer == 6);
  CHECK(all_are(std::span(own).first(16), 1));
  CHECK(all_are(std::span(own).subspan(16, 32), 9));
  CHECK(all_are(std::span(own).subspan(48, 13), 1));
  CHECK(text_of(std::span(own).last(3)) == "abc");
}

TEST_CASE("memory that is sent does not change after its call has ended") {
  sending_calls all;
  auto part = filled<plain_memory>(all.bed, 100, std::byte{9});
  const auto write_late = [&] {
    received_call<keep> late = all.serving.take_kept();
    must(late.write(part));
    must(late.answer(1));
  };
  const auto finish = [&](const auto& memory) {
    wait_until(
        [&] {
          must(all.calls.call<sum_method>({.first = 1, .second = 2}, patience));
          return all.calls.statistics().late_answers == 1;
        },
        "the late answer");
    CHECK(all_are(memory, 1));
  };
  SECTION("by its limit") {
    std::vector<std::byte> own(100, std::byte{1});
    CHECK(failure_of(all.calls.call<keep>(1, own, 10ms)) == error_kind::timed_out);
    write_late();
    finish(own);
  }
  SECTION("by its handle") {
    const auto memory = must(filled<window_memory>(all.bed, 100, std::byte{1}).share());
    auto posted = must(all.calls.post_call<keep>(1, memory));
    posted.give_up();
    write_late();
    finish(memory);
  }
  SECTION("after its answer has arrived") {
    const auto memory = must(filled<window_memory>(all.bed, 100, std::byte{1}).share());
    std::optional posted(must(all.calls.post_call<keep>(1, memory)));
    write_late();
    must(all.calls.call<sum_method>({.first = 1, .second = 2}, patience));
    posted.reset();
    must(all.calls.call<sum_method>({.first = 1, .second = 2}, patience));
    CHECK(all_are(memory, 1));
  }
  SECTION("by the end of its caller") {
    const auto memory = must(filled<window_memory>(all.bed, 100, std::byte{1}).share());
    std::optional<caller> other(all.serving.call_with({}));
    auto posted = must(other->post_call<keep>(1, memory));
    received_call<keep> late = all.serving.take_kept();
    other.reset();
    must(late.write(part));
    must(late.answer(1));
    CHECK(failure_of(posted.wait(patience)) == error_kind::not_connected);
    CHECK(all_are(memory, 1));
  }
  CHECK(all.calls.statistics().lanes == 0);
}

TEST_CASE("many calls that send shared memory are in flight, more than there are lanes") {
  sending_calls all;
  std::vector<pending_call<keep>> handles;
  std::vector<shared_buffer<window_memory::rights>> kept_memory;
  for (std::uint32_t i = 0; i < 8; ++i) {
    auto memory = must(filled<window_memory>(all.bed, 100, std::byte{1}).share());
    handles.push_back(must(all.calls.post_call<keep>(i, memory)));
    // In every second round, the test drops its handle, so that only the call keeps the memory.
    if (i % 2 == 0) kept_memory.push_back(std::move(memory));
  }
  auto calls = all.serving.kept.take(8);
  for (std::size_t i = 8; i-- > 0;) {
    const piece half{50, 50};
    all.write(calls[i], std::span(&half, 1));
    must(calls[i].answer(static_cast<std::uint32_t>(i)));
  }
  for (std::size_t i = 0; i < 8; ++i) CHECK(must(handles[i].wait(patience)) == i);
  for (const auto& each : kept_memory) {
    CHECK(all_are(std::span(each).first(50), 1));
    CHECK(all_are(std::span(each).subspan(50), 100));
  }
  CHECK(all.calls.statistics().lanes == 0);
}

TEST_CASE("a refusal contains its whole text, and what the handler has written if it fits") {
  sending_calls all;
  std::vector<std::byte> own(most_to_write, std::byte{1});
  const std::string text(300, 't');
  const auto refused = [&](std::size_t size) {
    std::thread serving([&] {
      received_call<keep> call = all.serving.take_kept();
      const piece first{0, 50};
      all.write(call, std::span(&first, 1));
      call.refuse(error_kind::busy, text);
    });
    const error got = failure_of(all.calls.call<keep>(1, std::span(own).first(size), patience));
    serving.join();
    CHECK(is_refusal(got));
    CHECK(got == error_kind::busy);
    CHECK_THAT(got.message(), Catch::Contains(text));
  };
  refused(most_to_write);
  CHECK(all_are(own, 1));
  refused(100);
  CHECK(all_are(std::span(own).first(50), 100));
  CHECK(all_are(std::span(own).subspan(50), 1));
}

TEST_CASE("a call that could not be sent leaves its memory unchanged") {
  sending_calls all;
  const auto memory = must(filled<window_memory>(all.bed, 100, std::byte{1}).share());
  {
    const failing_operation refused(all.bed.context.native_handle()->ops.post_send, ENOMEM,
                                    convention::returns_errno);
    CHECK(failure_of(all.calls.post_call<fill>(7, memory)).native_errno() == ENOMEM);
  }
  CHECK(all_are(memory, 1));
  CHECK(must(all.calls.call<fill>(7, memory, patience)) == 100);
  CHECK(all_are(memory, 7));
}

TEST_CASE("coroutines await calls whose memory is sent") {
  sending_calls all;
  const auto memory = must(filled<window_memory>(all.bed, 128, std::byte{1}).share());
  using routine = eager<result<void>>;
  const auto talk = [&](unsigned first) -> routine {
    for (unsigned i = 0; i < 20; ++i) {
      VERBSPP_CO_TRY(part, memory.part(first, 16));
      VERBSPP_CO_TRY(count, co_await all.calls.async_call<fill>(
                                static_cast<std::uint8_t>(first + i), part, patience));
      if (count != 16 || !all_are(std::span(memory).subspan(first, 16), first + i))
        co_return error(error_kind::mismatch, "test", "wrong bytes");
    }
    co_return success();
  };
  std::vector<routine> talking;
  for (unsigned i = 0; i < 4; ++i) talking.push_back(talk(i * 16));
  for (routine& each : talking) {
    wait_until(
        [&] {
          all.calls.link().poll();
          return each.is_done();
        },
        "the coroutine");
    must(each.get());
  }
  CHECK(all.calls.statistics().lanes == 0);
}
