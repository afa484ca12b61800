// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <cstring>
#include <thread>

using namespace verbspp;
using namespace verbspp::test;

namespace {

constexpr access_flags atomic_rights = all_rights | access::remote_atomic;
using words = buffer<atomic_rights>;

std::uint64_t word_at(const words& memory, std::size_t offset = 0) {
  std::uint64_t word = 0;
  std::memcpy(&word, memory.bytes().data() + offset, sizeof word);
  return word;
}

void set_word(words& memory, std::uint64_t word, std::size_t offset = 0) {
  std::memcpy(memory.content().data() + offset, &word, sizeof word);
}

connected_pair connect_for_atomics(const testbed& bed) {
  if (bed.limits.atomic_cap == IBV_ATOMIC_NONE) SKIP("the device has no atomic operations");
  return connect(must(bed.builder(bed.left_queue).access(atomic_rights).build()),
                 must(bed.builder(bed.right_queue).access(atomic_rights).build()));
}

/// A fixture with two ends that may use atomic operations on each other's memory.
struct atomic_pair {
  const testbed bed{};
  connected_pair pair = connect_for_atomics(bed);
};

}  // namespace

TEST_CASE_METHOD(atomic_pair,
                 "compare and swap changes only an expected value and returns the previous one") {
  words target(bed.domain, 64);
  words result(bed.domain, 8);
  constexpr std::uint64_t before = 0x0123456789abcdef, after = 0xfedcba9876543210;
  set_word(target, before, 16);
  const remote_word word = must(remote_word::at(target.remote(), 16));

  must(pair.left.post_compare_and_swap(
      {.result = result.scatter(), .remote = word, .expected = before, .desired = after},
      {.id = 1}));
  CHECK(take_success(bed.left_queue, 1).operation() == work_operation::compare_and_swap);
  CHECK(word_at(result) == before);
  CHECK(word_at(target, 16) == after);

  must(pair.left.post_compare_and_swap(
      {.result = result.scatter(), .remote = word, .expected = before, .desired = 1}, {.id = 2}));
  take_success(bed.left_queue, 2);
  CHECK(word_at(result) == after);
  CHECK(word_at(target, 16) == after);
  CHECK(word_at(target, 8) == 0);
  CHECK(word_at(target, 24) == 0);
}

TEST_CASE_METHOD(atomic_pair,
                 "fetch and add adds with wrap-around and returns the previous value") {
  words target(bed.domain, 8);
  words result(bed.domain, 8);
  set_word(target, UINT64_MAX - 1);
  const remote_word word = must(remote_word::at(target.remote()));
  for (const std::uint64_t expected : {UINT64_MAX - 1, std::uint64_t{1}, std::uint64_t{4}}) {
    must(pair.left.post_fetch_and_add({.result = result.scatter(), .remote = word, .addend = 3},
                                      {.id = expected}));
    CHECK(take_success(bed.left_queue, expected).operation() == work_operation::fetch_and_add);
    CHECK(word_at(result) == expected);
  }
  CHECK(word_at(target) == 7);
}

TEST_CASE_METHOD(atomic_pair, "atomic operations of two queue pairs do not overwrite each other") {
  words target(bed.domain, 8);
  const remote_word word = must(remote_word::at(target.remote()));
  constexpr std::uint64_t rounds = 200;
  const auto add = [&](connected& end, const completion_queue& queue) {
    words result(bed.domain, 8);
    for (std::uint64_t i = 0; i < rounds; ++i) {
      must(end.post_fetch_and_add({.result = result.scatter(), .remote = word, .addend = 1},
                                  {.id = i}));
      if (!take_one(queue).is_success()) throw failure(__FILE__, __LINE__, "an addition failed");
    }
  };
  std::thread other([&] { add(pair.right, bed.right_queue); });
  add(pair.left, bed.left_queue);
  other.join();
  CHECK(word_at(target) == 2 * rounds);
}

TEST_CASE_METHOD(atomic_pair, "an atomic operation without the right is refused by the peer") {
  // The queue pair grants the right, but the memory does not.
  buffer<> target(bed.domain, 8);
  words result(bed.domain, 8);
  const remote_memory<access::remote_atomic> claimed(target.remote().address(), 8,
                                                     target.remote().rkey());
  must(pair.left.post_fetch_and_add(
      {.result = result.scatter(), .remote = must(remote_word::at(claimed)), .addend = 1},
      {.id = 1}));
  CHECK(status_of(take_one(bed.left_queue)) == work_status::remote_access_error);
  CHECK(target.bytes() == std::vector<std::byte>(8));
}

TEST_CASE("a remote word must be aligned and within its memory") {
  const testbed bed;
  const words target(bed.domain, 64);
  const auto remote = must(target.remote().slice(0, 32));
  const std::uint64_t misaligned = remote.address() % 8;
  REQUIRE(misaligned == 0);
  CHECK(must(remote_word::at(remote, 24)).address() == remote.address() + 24);
  const error unaligned = failure_of(remote_word::at(remote, 4));
  CHECK(unaligned == error_kind::invalid_input);
  CHECK_THAT(unaligned.message(), Catch::Contains("multiple of 8"));
  CHECK(failure_of(remote_word::at(remote, 32)) == error_kind::invalid_input);
  CHECK(failure_of(remote_word::at(remote, UINT64_MAX - 3)) == error_kind::invalid_input);
}

TEST_CASE_METHOD(two_queue_pairs, "the result of an atomic operation must have eight bytes") {
  const words target(bed.domain, 8);
  const words result(bed.domain, 16);
  for (const std::size_t length : {0U, 4U, 16U}) {
    const error e =
        failure_of(pair.left.post_fetch_and_add({.result = result.scatter(0, length),
                                                 .remote = must(remote_word::at(target.remote())),
                                                 .addend = 1},
                                                {.id = 1}));
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains("ibv_post_send (fetch and add)") &&
                                Catch::Contains("bytes for the result (8)"));
  }
}

namespace {

/// Tests atomic writes on a queue pair with the extended interface. This function is a template so
/// that it compiles even if libibverbs lacks the operation.
template <class QueuePair>
void write_atomically(const testbed& bed, QueuePair& left, words& target) {
  constexpr std::uint64_t before = 0x0123456789abcdef, after = 0xfedcba9876543210;
  const auto remote = target.remote();
  set_word(target, before, 16);
  const auto at = [&](std::uint64_t offset, std::uint64_t length) {
    return must(remote.slice(offset, length));
  };
  supported(left.post_atomic_write({.value = after, .remote = at(16, 8)}, {.id = 1}),
            "atomic write");
  CHECK(take_success(bed.left_queue, 1).operation() == work_operation::atomic_write);
  CHECK(word_at(target, 16) == after);

  // The value is copied when the request is added to the batch, not when the batch is posted.
  must(left.template post_batch<3>([&](auto& batch) {
    for (std::uint64_t i = 0; i < 3; ++i)
      batch.post_atomic_write({.value = i + 1, .remote = at(8 * i, 8)}, {.id = i});
  }));
  for (std::uint64_t i = 0; i < 3; ++i) {
    take_success(bed.left_queue, i);
    CHECK(word_at(target, 8 * i) == i + 1);
  }

  CHECK_THAT(failure_of(left.post_atomic_write({.value = 1, .remote = at(0, 7)})).message(),
             Catch::Contains("bytes of the remote memory (8 or more): 7 is out of range"));
  CHECK_THAT(failure_of(left.post_atomic_write({.value = 1, .remote = at(4, 8)})).message(),
             Catch::Contains("aligned to 8 bytes"));
  CHECK(count_within_a_moment(bed.left_queue) == 0);
}

}  // namespace

TEST_CASE("an atomic write writes eight bytes both alone and in a batch") {
  const testbed bed;
  auto prepared_left = supported(bed.left().extended_posting().build(), extended_posting);
  prepared prepared_right = must(bed.right().build());
  const endpoint address = prepared_left.endpoint();
  auto left = must(std::move(prepared_left).handshake(prepared_right.endpoint()));
  const connected right = must(std::move(prepared_right).handshake(address));
  words target(bed.domain, 64);
  [&]<class Native>(Native* /*known*/) {
    if constexpr (detail::knows_atomic_write<Native>)
      write_atomically(bed, left, target);
    else
      SKIP("this libibverbs has no ibv_wr_atomic_write");
  }(static_cast<ibv_qp_ex*>(nullptr));
}
