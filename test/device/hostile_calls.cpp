// SPDX-License-Identifier: Apache-2.0
// Calls with peers that break the protocol: clients and services that send arbitrary messages.

#include "lending.hpp"
#include "raw_calls.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

raw_end hostile_client(const testbed& bed, running_service& serving) {
  raw_end client(bed);
  client.connect(serving.connect(client.take_prepared()));
  return client;
}

/// A service whose part is played by the test, and a caller that is connected to it.
class played_service {
 public:
  /// \param largest the size of the largest request that the service claims to accept
  /// \param credits the number of messages that the caller may send, including the comparison
  explicit played_service(const testbed& bed, std::uint32_t largest = 1024,
                          std::uint32_t credits = 100)
      : end(bed) {
    auto prepared_end = must(bed.domain.build_channel().build());
    calls.emplace(must(caller::open(prepared_end)));
    channel_pair ends = connect_channels(std::move(prepared_end), end.take_prepared());
    end.connect(std::move(ends.right));
    // Answers the comparison of methods, with which a caller starts.
    std::string failed;
    std::thread starting([&] {
      const auto started =
          calls->start<sum_method, echo_method, add_up, fill>(std::move(ends.left), patience);
      if (started.has_error()) failed = started.error().message();
    });
    const std::array<std::uint32_t, 2> sizes{detail::in_frame_order(largest),
                                             detail::in_frame_order(std::uint32_t{1024})};
    end.send(frame(answer_to(end.receive_header(), credits), bytes_in(sizes)));
    starting.join();
    if (!failed.empty()) throw failure(__FILE__, __LINE__, failed);
  }

  /// The header of an answer to this call.
  [[nodiscard]] static call_header answer_to(const call_header& call, std::uint32_t credits = 100) {
    return {.kind = call_frame_kind::answer,
            .method = call.method,
            .number = call.number,
            .length = 0,
            .credits = credits};
  }

  /// Answers with the sum 8.
  bool send_sum(const call_header& answer) {
    const std::int64_t sum = 8;
    return end.send(frame(answer, bytes_in(sum)));
  }

  raw_end end;
  std::optional<caller> calls{};
};

}  // namespace

TEST_CASE("a service removes a client that breaks the protocol, and serves the others") {
  const testbed bed;
  running_service serving(bed);
  caller honest = serving.call();
  raw_end client = hostile_client(bed, serving);
  const std::int64_t numbers[] = {1, 2};
  const call_header valid{.kind = call_frame_kind::call, .method = 1, .number = 5};
  SECTION("by an empty message") { client.send({}); }
  SECTION("by a message that is too short for a header") { client.send(pattern(15, 1)); }
  SECTION("by another version of the protocol") {
    auto sent = frame(valid, bytes_in(numbers));
    sent[1] = std::byte{9};
    client.send(sent);
  }
  SECTION("by an answer") {
    client.send(frame({.kind = call_frame_kind::answer, .method = 1, .number = 5}));
  }
  SECTION("by an unknown kind") {
    client.send(frame({.kind = static_cast<call_frame_kind>(0), .method = 1, .number = 5}));
  }
  SECTION("by a length that differs from that of the message") {
    client.send(frame({.kind = call_frame_kind::call, .method = 1, .number = 5, .length = 17},
                      bytes_in(numbers)));
  }
  SECTION("by more calls than its credits") {
    const std::int32_t value = 1;
    for (int i = 0; i < 9; ++i)
      client.send(
          frame({.kind = call_frame_kind::call, .method = 3, .number = 5}, bytes_in(value)));
  }
  wait_until([&] { return serving.served().clients() == 1; }, "the removal");
  CHECK(serving.served().statistics().removed_clients == 1);
  CHECK(must(honest.call<sum_method>({.first = 1, .second = 2}, patience)) == 3);
}

TEST_CASE("a client that exceeds its credits is removed even if its calls are answered at once") {
  const testbed bed;
  running_service serving(bed);
  raw_end client = hostile_client(bed, serving);
  serving.stop();
  const std::int64_t numbers[] = {1, 2};
  for (std::uint32_t i = 0; i <= service_options().in_flight; ++i)
    CHECK(client.send(
        frame({.kind = call_frame_kind::call, .method = 1, .number = i}, bytes_in(numbers))));
  // All of the calls arrive before the client's turn.
  wait_until(
      [&] {
        must(serving.served().poll());
        return serving.served().clients() == 0;
      },
      "the removal");
  CHECK(serving.served().statistics().removed_clients == 1);
}

TEST_CASE("a service refuses calls that do not fit its methods, and keeps the client") {
  const testbed bed;
  running_service serving(bed);
  raw_end client = hostile_client(bed, serving);
  const auto refused = [&](std::uint16_t method, std::span<const std::byte> body) {
    CHECK(
        client.send(frame({.kind = call_frame_kind::call, .method = method, .number = 77}, body)));
    const message answer = client.receive();
    const auto header = call_header::decode(answer.bytes()).value();
    CHECK(header.kind == call_frame_kind::refusal);
    CHECK(header.number == 77);
    return text_of(answer.bytes().subspan(call_header::size + 1));
  };
  CHECK_THAT(refused(99, {}), Catch::Contains("no method with the number 99"));
  CHECK_THAT(refused(1, pattern(15, 1)),
             Catch::Contains("has 15 bytes, but the service expects 16"));
  CHECK_THAT(refused(1, {}), Catch::Contains("has 0 bytes"));
  CHECK_THAT(refused(0, {}), Catch::Contains("malformed list"));
  CHECK_THAT(refused(0, pattern(6, 1)), !Catch::Contains("terminated"));
  CHECK(serving.served().clients() == 1);
  CHECK(serving.served().statistics().removed_clients == 0);
}

TEST_CASE("a service sends answers of 128 bytes even if a client claims to accept none") {
  const testbed bed;
  running_service serving(bed);
  raw_end client = hostile_client(bed, serving);
  const auto size_of_answer = [&](std::uint16_t method, std::span<const std::byte> body) {
    CHECK(client.send(frame({.kind = call_frame_kind::call, .method = method, .number = 1}, body)));
    const call_header answer = client.receive_header();
    CHECK(answer.kind == call_frame_kind::answer);
    return answer.length;
  };
  std::vector<std::byte> comparison(6);
  comparison[0] = std::byte{std::endian::native == std::endian::big};
  CHECK(size_of_answer(0, comparison) == 8);
  CHECK(size_of_answer(echo_method::number, pattern(128, 1)) == 128);
}

TEST_CASE("a service survives random lists of methods and random requests") {
  const testbed bed;
  running_service serving(bed);
  raw_end client = hostile_client(bed, serving);
  std::minstd_rand random(5);
  for (std::uint32_t i = 0; i < repetitions(1000); ++i) {
    // If the method is 0, the body is a list of methods. The list begins plausibly, so that the
    // service also reads its entries.
    std::vector<std::byte> body = pattern(6 + random() % 122, static_cast<unsigned>(random()));
    body[0] = std::byte{0};
    body[1] = static_cast<std::byte>(random() % 12);
    if (random() % 2 == 0)
      for (std::size_t at = 6; at < body.size(); ++at)
        body[at] = static_cast<std::byte>(random() % 5);
    const auto method = static_cast<std::uint16_t>(random() % 3);
    CHECK(client.send(frame({.kind = call_frame_kind::call, .method = method, .number = i}, body)));
    CHECK(client.receive_header().number == i);
  }
  CHECK(serving.served().clients() == 1);
}

TEST_CASE("a caller drops answers that belong to no call") {
  const testbed bed;
  played_service peer(bed);
  auto waiting = must(peer.calls->post_call<sum_method>({.first = 1, .second = 2}));
  const call_header call = peer.end.receive_header();
  const std::int64_t right = 3, wrong = 4;
  auto strange = peer.answer_to(call);
  SECTION("for another method") { strange.method = 2; }
  SECTION("for an earlier call of the same slot") { strange.number += 1U << 16; }
  SECTION("for a slot without a call") { ++strange.number; }
  CHECK(peer.end.send(frame(strange, bytes_in(wrong))));
  CHECK(peer.end.send(frame(peer.answer_to(call), bytes_in(right))));
  CHECK(must(waiting.wait(patience)) == 3);
  // A second answer to the same call.
  CHECK(peer.end.send(frame(peer.answer_to(call), bytes_in(wrong))));
  auto next = must(peer.calls->post_call<sum_method>({.first = 5, .second = 6}));
  const std::int64_t eleven = 11;
  CHECK(peer.end.send(frame(peer.answer_to(peer.end.receive_header()), bytes_in(eleven))));
  CHECK(must(next.wait(patience)) == 11);
  CHECK(peer.calls->statistics().late_answers == 2);
}

TEST_CASE(
    "a caller drops a second answer to a call, and an answer to a call that it has not made") {
  const testbed bed;
  played_service peer(bed);
  std::vector<pending_call<sum_method>> waiting;
  std::vector<call_header> sent;
  const auto post = [&] {
    waiting.push_back(must(peer.calls->post_call<sum_method>({})));
    sent.push_back(peer.end.receive_header());
  };
  const auto answer = [&](const call_header& call, std::int64_t sum) {
    CHECK(peer.end.send(frame(peer.answer_to(call), bytes_in(sum))));
  };
  post();
  post();
  answer(sent[0], 10);
  answer(sent[0], 666);
  call_header next = sent[0];
  next.number += 1U << 16;
  SECTION("before the first answer is taken") {
    answer(sent[1], 11);
    CHECK(must(waiting[1].wait(patience)) == 11);
    const auto first = waiting[0].poll();
    REQUIRE(first);
    CHECK(must(*first) == 10);
  }
  SECTION("for the next call of a free slot") {
    CHECK(must(waiting[0].wait(patience)) == 10);
    answer(next, 666);
    answer(sent[1], 11);
    CHECK(must(waiting[1].wait(patience)) == 11);
  }
  // Each call has a slot of its own.
  for (int i = 2; i < 6; ++i) post();
  for (std::size_t i = 6; i-- > 2;) answer(sent[i], static_cast<std::int64_t>(i));
  for (std::size_t i = 2; i < 6; ++i)
    CHECK(must(waiting[i].wait(patience)) == static_cast<std::int64_t>(i));
}

TEST_CASE("a caller reports an answer of the wrong size, and continues") {
  const testbed bed;
  played_service peer(bed);
  auto waiting = must(peer.calls->post_call<sum_method>({}));
  const std::int32_t half = 0;
  CHECK(peer.end.send(frame(peer.answer_to(peer.end.receive_header()), bytes_in(half))));
  const error differs = failure_of(waiting.wait(patience));
  CHECK(differs == error_kind::mismatch);
  CHECK_FALSE(is_refusal(differs));
  CHECK_THAT(differs.message(), Catch::Contains("size of the answer"));
  auto next = must(peer.calls->post_call<sum_method>({}));
  const std::int64_t sum = 8;
  CHECK(peer.end.send(frame(peer.answer_to(peer.end.receive_header()), bytes_in(sum))));
  CHECK(must(next.wait(patience)) == 8);
}

TEST_CASE("a caller never has more calls in flight than its option, even with more credits") {
  const testbed bed;
  played_service peer(bed);
  auto first = must(peer.calls->post_call<sum_method>({}));
  auto answer = peer.answer_to(peer.end.receive_header());
  answer.credits = 0x7FFFFFFF;
  CHECK(peer.send_sum(answer));
  CHECK(must(first.wait(patience)) == 8);
  std::vector<pending_call<sum_method>> waiting;
  for (int i = 0; i < 8; ++i) waiting.push_back(must(peer.calls->post_call<sum_method>({})));
  CHECK(failure_of(peer.calls->post_call<sum_method>({})) == error_kind::would_block);
}

TEST_CASE("a caller sends no call before the service has granted a credit for it") {
  const testbed bed;
  played_service peer(bed, 1024, 1);  // the comparison has used this credit
  CHECK(failure_of(peer.calls->post_call<sum_method>({})) == error_kind::would_block);
}

TEST_CASE("an answer with fewer credits than an earlier one revokes no credit") {
  const testbed bed;
  played_service peer(bed, 1024, 4);  // credits for the comparison and three calls
  const auto call = [&](std::uint32_t credits) {
    auto waiting = must(peer.calls->post_call<sum_method>({}));
    CHECK(peer.send_sum(peer.answer_to(peer.end.receive_header(), credits)));
    CHECK(must(waiting.wait(patience)) == 8);
  };
  call(1);
  call(0);
  call(3);
  CHECK(failure_of(peer.calls->post_call<sum_method>({})) == error_kind::would_block);
}

TEST_CASE("only its own answer frees the slot of a call whose handle was dropped") {
  const testbed bed;
  played_service peer(bed);
  call_header first;
  for (std::uint32_t i = 0; i < caller_options().in_flight; ++i) {
    static_cast<void>(must(peer.calls->post_call<sum_method>({})));  // drops the handle
    const call_header call = peer.end.receive_header();
    if (i == 0) first = call;
  }
  const auto still_full = [&](const call_header& answered) {
    const std::uint64_t earlier = peer.calls->statistics().late_answers;
    CHECK(peer.send_sum(peer.answer_to(answered)));
    bool is_full = true;
    wait_until(
        [&] {
          is_full = peer.calls->post_call<sum_method>({}).has_error();
          return !is_full || peer.calls->statistics().late_answers != earlier;
        },
        "the answer");
    return is_full && peer.calls->post_call<sum_method>({}).has_error();
  };
  call_header other = first;
  SECTION("another call of the slot") { other.number += 1U << 16; }
  SECTION("a call of another method") { other.method = 2; }
  CHECK(still_full(other));
  CHECK_FALSE(still_full(first));
}

TEST_CASE("a call that waits for a credit counts once although other answers wake it") {
  const testbed bed;
  played_service peer(bed, 1024, 2);  // credits for the comparison and one call
  auto first = must(peer.calls->post_call<sum_method>({}));
  const call_header call = peer.end.receive_header();
  std::thread answering([&] {
    const auto statistics = [&] { return peer.calls->statistics(); };
    wait_until([&] { return statistics().waits != 0; }, "the wait");
    call_header strange = peer.answer_to(call);
    ++strange.number;
    for (std::uint64_t i = 1; i <= 3; ++i) {
      peer.send_sum(strange);
      wait_until([&] { return statistics().late_answers == i; }, "the answer");
    }
    peer.send_sum(peer.answer_to(call));
    peer.send_sum(peer.answer_to(peer.end.receive_header()));
  });
  const auto second = peer.calls->call<sum_method>({}, patience);
  answering.join();
  CHECK(must(second) == 8);
  CHECK(must(first.wait(patience)) == 8);
  CHECK(peer.calls->statistics().waits == 1);
}

TEST_CASE("a message that cannot be an answer ends the connection of a caller") {
  const testbed bed;
  played_service peer(bed);
  auto waiting = must(peer.calls->post_call<sum_method>({}));
  const call_header call = peer.end.receive_header();
  SECTION("a call") { peer.end.send(frame(call, pattern(16, 1))); }
  SECTION("a short message") { peer.end.send(pattern(3, 1)); }
  SECTION("an answer to a slot that does not exist") {
    auto answer = peer.answer_to(call);
    answer.number = caller_options().in_flight;  // the first one that does not exist
    peer.end.send(frame(answer));
  }
  const error ended = failure_of(waiting.wait(patience));
  CHECK(ended == error_kind::mismatch);
  CHECK_THAT(ended.message(), Catch::Contains("not an answer"));
  CHECK(failure_of(peer.calls->call<sum_method>({}, patience)) == error_kind::mismatch);
}

TEST_CASE("a caller refuses a service that accepts only requests of a few bytes") {
  const testbed bed;
  for (const std::uint32_t largest : {0U, 31U, 127U})
    CHECK_THROWS_WITH(played_service(bed, largest),
                      Catch::Contains("requests of less than 128 bytes"));
  // 128 bytes are accepted, but are too few to lend memory.
  CHECK_THROWS_WITH(played_service(bed, 128), Catch::Contains("use at least 376 bytes"));
}

TEST_CASE("a caller survives refusals with invalid content") {
  const testbed bed;
  played_service peer(bed);
  for (const std::size_t size : {0U, 1U, 2U, 700U}) {
    auto waiting = must(peer.calls->post_call<sum_method>({}));
    auto refusal = peer.answer_to(peer.end.receive_header());
    refusal.kind = call_frame_kind::refusal;
    std::vector<std::byte> body(size, std::byte{0xFF});
    CHECK(peer.end.send(frame(refusal, body)));
    const error refused = failure_of(waiting.wait(patience));
    CHECK(is_refusal(refused));
    CHECK(refused == error_kind::driver);
    CHECK_FALSE(refused.message().empty());
  }
}

TEST_CASE("a service cannot write outside of memory that a call sends") {
  const testbed bed;
  played_service peer(bed);
  // The memory that is lent is the middle of this buffer.
  auto memory = filled<window_memory>(bed, 300, std::byte{1});
  const std::span lent = std::span(memory).subspan(100, 100);
  const auto head = [](std::uint32_t written, std::uint32_t bits, std::size_t size) {
    std::vector<std::byte> body(size, std::byte{0xFF});
    if (size >= 8) {
      detail::put_in_frame(body.data(), written);
      detail::put_in_frame(body.data() + 4, bits);
    }
    return body;
  };
  const auto answered = [&](std::span<const std::byte> body, std::byte flags,
                            call_frame_kind kind = call_frame_kind::answer) {
    std::size_t size = 0;
    std::thread serving([&] {
      const message call = peer.end.receive();
      size = call.size();
      auto header = peer.answer_to(call_header::decode(call.bytes()).value());
      header.flags = flags;
      header.kind = kind;
      header.credits = 100'000;
      peer.end.send(frame(header, body));
    });
    auto done = peer.calls->call<fill>(1, lent, patience);
    serving.join();
    // The service may only write to the memory, so the call does not contain the memory's bytes.
    CHECK(size == call_header::size + 32 + 1);
    CHECK(all_are(std::span(memory).first(100), 1));
    CHECK(all_are(std::span(memory).subspan(200), 1));
    return done;
  };
  constexpr std::byte written = call_header::has_written;
  for (const auto& wrong :
       {head(0, 0, 0), head(0, 0, 7), head(0, 0, 31), head(101, 0, 32 + 101 + 8),
        head(UINT32_MAX, 0, 140), head(100, 0, 131), head(100, 12, 32 + 100 + 12 + 8),
        head(100, UINT32_MAX, 152), head(100, 13, 140), head(0, 1, 41), head(0, UINT32_MAX, 40)}) {
    const error refused = failure_of(answered(wrong, written));
    CHECK(refused == error_kind::mismatch);
    CHECK_THAT(refused.message(), Catch::Contains("does not follow the protocol"));
    CHECK(all_are(lent, 1));
  }
  // The answer behind the written bytes has the wrong size.
  CHECK(failure_of(answered(head(100, 0, 32 + 100 + 7), written)) == error_kind::mismatch);
  CHECK(all_are(lent, 0xFF));
  CHECK(must(answered(head(100, 13, 32 + 100 + 8 + 13), written)) == UINT64_MAX);
  CHECK(must(answered(head(0, 0, 32 + 8), written)) == UINT64_MAX);
  CHECK(must(answered(head(0, 0, 32 + 8), written | call_header::lane_failed)) == UINT64_MAX);
  CHECK(
      is_refusal(failure_of(answered(head(3, 1, 32 + 3 + 1), written, call_frame_kind::refusal))));
  std::minstd_rand random(9);
  for (std::uint32_t i = 0; i < repetitions(300); ++i) {
    auto body = head(random() % 110, random() % 16, random() % 200);
    static_cast<void>(answered(body, written));
  }
  // Without the flag `has_written`, the whole body is the answer.
  std::ranges::fill(lent, std::byte{1});
  CHECK(must(answered(head(100, 0, 8), std::byte{0})) != 0);
  CHECK(all_are(lent, 1));
  CHECK(peer.calls->link().is_connected());
}

TEST_CASE("an answer cannot change memory that a call sends only to be read") {
  const testbed bed;
  played_service peer(bed);
  std::vector<std::byte> own(50, std::byte{1});
  std::size_t size = 0;
  std::thread serving([&] {
    const message call = peer.end.receive();
    size = call.size();
    auto header = peer.answer_to(call_header::decode(call.bytes()).value());
    header.flags = call_header::has_written;
    std::vector<std::byte> body(90, std::byte{0xFF});
    detail::put_in_frame(body.data(), std::uint32_t{50});
    detail::put_in_frame(body.data() + 4, std::uint32_t{0});
    peer.end.send(frame(header, body));
  });
  const error refused = failure_of(peer.calls->call<add_up>(1, own, patience));
  serving.join();
  CHECK(refused == error_kind::mismatch);
  CHECK(size == call_header::size + 32 + 50 + 8);
  CHECK(all_are(own, 1));
}

TEST_CASE("a client cannot make a service read outside of a message") {
  const testbed bed;
  lending_service serving(bed);
  raw_end client(bed);
  client.connect(serving.connect(client.take_prepared()));
  const auto ask = [&](std::uint16_t method, std::span<const std::byte> body) {
    CHECK(client.send(
        frame({.kind = call_frame_kind::lending_call, .method = method, .number = 77}, body)));
    message answer = client.receive();
    CHECK(call_header::decode(answer.bytes()).value().number == 77);
    return answer;
  };
  const auto text_for = [&](std::uint16_t method, std::span<const std::byte> body) {
    const message answer = ask(method, body);
    if (call_header::decode(answer.bytes()).value().kind != call_frame_kind::refusal)
      return std::string("answered");
    return text_of(answer.bytes().subspan(call_header::size + 1));
  };
  /// The body of a call that lends memory with the rights of `as`, and claims that the memory has
  /// this length. `size` bytes follow the description of the memory.
  const auto sent = [](auto as, std::uint64_t length, std::size_t size) {
    const remote_memory<decltype(as)::rights> memory(0, length, remote_key(std::uint32_t{0}));
    std::vector<std::byte> body(32 + size, std::byte{2});
    std::ranges::fill(std::span(body).first(32), std::byte{0});
    std::ranges::copy(memory.encode(), body.begin());
    detail::put_in_frame(body.data() + 24, detail::sent_lane);
    return body;
  };
  const remote_memory<readable> to_read(0, 0, remote_key(std::uint32_t{0}));
  const remote_memory<writable> to_write(0, 0, remote_key(std::uint32_t{0}));
  const remote_memory<readable | writable> both(0, 0, remote_key(std::uint32_t{0}));
  // Until the methods are compared, answers have at most 128 bytes.
  CHECK_THAT(text_for(12, sent(to_write, 100, 1)), Catch::Contains("too small"));
  CHECK(text_for(12, sent(to_write, 70, 1)) == "answered");
  std::vector<std::byte> comparison(6);
  // The service does not accept more than its own maximum, 1024 bytes.
  const std::uint32_t size = UINT32_MAX;
  std::ranges::copy(bytes_in(size), comparison.begin() + 2);
  comparison[0] = std::byte{std::endian::native == std::endian::big};
  CHECK(client.send(frame({.kind = call_frame_kind::call, .method = 0, .number = 77}, comparison)));
  static_cast<void>(client.receive());

  for (const std::uint64_t length :
       {std::uint64_t{9}, std::uint64_t{1000}, std::uint64_t{65'536}, std::uint64_t{65'537},
        std::uint64_t{UINT32_MAX}, std::uint64_t{UINT64_MAX}, UINT64_MAX - 32}) {
    CHECK_THAT(text_for(11, sent(to_read, length, 8)),
               Catch::Contains("too small") || Catch::Contains("does not accept"));
    CHECK_THAT(text_for(14, sent(both, length, 8)),
               Catch::Contains("too small") || Catch::Contains("does not accept"));
    if (length > 874)
      CHECK_THAT(text_for(12, sent(to_write, length, 1)),
                 Catch::Contains("too small") || Catch::Contains("does not accept"));
  }
  CHECK_THAT(text_for(11, sent(to_read, 4, 8)), Catch::Contains("4 bytes, but the service"));
  CHECK_THAT(text_for(12, sent(to_write, 4, 0)), Catch::Contains("0 bytes, but the service"));
  CHECK_THAT(text_for(12, sent(to_write, 874, 2)), Catch::Contains("2 bytes, but the service"));
  // The answer of this method can have any size, so no space is left for the memory.
  CHECK_THAT(text_for(13, sent(both, 4, 8)), Catch::Contains("too small"));
  CHECK_THAT(text_for(11, sent(to_write, 4, 8)), Catch::Contains("does not grant"));
  CHECK(text_for(11, sent(to_read, 0, 8)) == "answered");
  CHECK(text_for(12, sent(to_write, 0, 1)) == "answered");
  CHECK(text_for(12, sent(to_write, 874, 1)) == "answered");

  // In the answer, the bytes that the service did not write are zeros, and not the remains of an
  // earlier message.
  for (int i = 0; i < 100; ++i)
    static_cast<void>(ask(99, std::vector<std::byte>(900, std::byte{7})));
  for (int i = 0; i < 30; ++i) {
    CHECK(client.send(frame({.kind = call_frame_kind::lending_call, .method = 15, .number = 77},
                            sent(to_write, 600, 4))));
    auto kept = std::move(serving.kept_to_write.take(1)[0]);
    auto part = filled<plain_memory>(bed, 1, std::byte{9});
    must(kept.write(part, 300));
    must(kept.write(part, 599));
    must(kept.answer(1));
    const message answer = client.receive();
    CHECK(call_header::decode(answer.bytes()).value().flags == call_header::has_written);
    const auto body = answer.bytes().subspan(call_header::size);
    CHECK(body.size() == 32 + 600 + 4 + 75);
    CHECK(all_are(body.subspan(32, 300), 0));
    CHECK(all_are(body.subspan(32 + 301, 298), 0));
  }
  std::mt19937 random(7);
  for (std::uint32_t i = 0; i < repetitions(300); ++i) {
    auto body = sent(both, random() % 1100, random() % 990);
    const std::uint16_t methods[] = {11, 12, 13};
    static_cast<void>(ask(methods[random() % 3], body));
  }
  CHECK(serving.served().clients() == 1);
  CHECK(serving.served().statistics().removed_clients == 0);
}

TEST_CASE("a service refuses memory in messages that is larger than its option") {
  const testbed bed;
  lending_service serving(bed, 1, {.sent_size = 50, .waiting = wait_mode::sleep()});
  raw_end client(bed);
  client.connect(serving.connect(client.take_prepared()));
  for (const std::uint64_t length : {std::uint64_t{50}, std::uint64_t{51}}) {
    const remote_memory<writable> memory(0, length, remote_key(std::uint32_t{0}));
    std::vector<std::byte> body(33);
    std::ranges::copy(memory.encode(), body.begin());
    detail::put_in_frame(body.data() + 24, detail::sent_lane);
    CHECK(client.send(
        frame({.kind = call_frame_kind::lending_call, .method = fill::number, .number = 1}, body)));
    const bool is_accepted = client.receive_header().kind == call_frame_kind::answer;
    CHECK(is_accepted == (length == 50));
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
  constexpr auto lanes = static_cast<std::uint16_t>(lending_service::default_options.lanes);
  CHECK_THAT(ask(lending, 12, lend(lanes, some)), Catch::Contains("a lane that is not open"));
  CHECK_THAT(ask(lending, 12, lend(65'000, some)), Catch::Contains("a lane that is not open"));
  CHECK(ask(lending, 12, lend(UINT16_MAX, none)) == "answered");
  auto short_one = lend(UINT16_MAX, none);
  short_one.pop_back();
  CHECK_THAT(ask(lending, 12, short_one), Catch::Contains("0 bytes, but the service expects 1"));
  CHECK_THAT(ask(lending, 11, lend(UINT16_MAX, none)), Catch::Contains("does not grant"));
  CHECK_THAT(ask(lending, 1, lend(UINT16_MAX, none)), Catch::Contains("expects none"));
  CHECK_THAT(ask(call_frame_kind::call, 12, pattern(1, 1)), Catch::Contains("expects some"));
  constexpr auto lane = call_frame_kind::lane_request;
  CHECK_THAT(ask(lane, 0, {}), Catch::Contains("malformed"));
  CHECK_THAT(ask(lane, 0, std::vector<std::byte>(376)), Catch::Contains("endpoint"));
  std::vector<std::byte> one_too_many(376);
  detail::put_in_frame(one_too_many.data(), lanes);
  CHECK_THAT(ask(lane, 0, one_too_many), Catch::Contains("has no lane"));
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> body(random() % 400);
    for (std::byte& each : body) each = static_cast<std::byte>(random());
    static_cast<void>(ask(i % 2 == 0 ? lane : lending, 12, body));
  }
  CHECK(serving.served().statistics().removed_clients == 0);

  // Two calls over a lane whose other end is not connected: the requests of the service fail.
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
