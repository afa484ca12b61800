// SPDX-License-Identifier: Apache-2.0
/// \file
/// Memory that requests own or keep: parts that own their whole buffer, and shared buffers.
#include "device.hpp"
#include "failing_verb.hpp"
#include <verbspp/memory/buffer_part.hpp>
#include <verbspp/memory/shared_buffer.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;

namespace {

struct slot {
  std::uint32_t state;
  std::uint64_t count;
};

constexpr access_flags rights = all_rights;
using slots = registered_buffer<rights, slot>;
using shared_slots = shared_buffer<rights, slot>;

std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

bool is_mapped(const void* address) {
  unsigned char resident = 0;
  return ::mincore(const_cast<void*>(address), 1, &resident) == 0;
}

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

template <class Outcome>
void check_gone(Outcome outcome) {
  CHECK_THAT(failure_of(std::move(outcome)).message(), Catch::Contains("was moved from"));
}

/// Moves the content out of the object, and returns the object in its moved-from state.
template <class Object>
const Object& emptied(Object& object) {
  const Object taken(std::move(object));
  return object;
}

int reports = 0;

}  // namespace

TEST_CASE("a part of a buffer owns the buffer and can return it") {
  const testbed bed;
  auto buffer = must(slots::allocate(bed.domain, 10));
  const slot* const start = buffer.data();
  buffer[3].count = 33;
  auto part = must(std::move(buffer).part(3, 4));
  CHECK(part.size() == 4);
  CHECK(part.first() == 3);
  CHECK(part.data() == start + 3);
  CHECK(part.end() - part.begin() == 4);
  CHECK(std::as_const(part)[0].count == 33);
  part[3].count = 66;
  CHECK(must(part.gather()).address() == address_of(start + 3));
  CHECK(must(part.gather()).length() == 4 * sizeof(slot));
  CHECK(must(part.scatter()).address() == address_of(start + 3));
  CHECK(must(part.remote()).address() == address_of(start + 3));
  CHECK(must(part.remote()).length() == 4 * sizeof(slot));

  auto other = std::move(part);
  CHECK(other.size() == 4);
  const auto back = std::move(other).buffer();
  CHECK(back.size() == 10);
  CHECK(back.data() == start);
  CHECK(back[6].count == 66);
}

TEST_CASE("a part that is not within its buffer leaves the buffer unchanged") {
  const testbed bed;
  auto buffer = must(slots::allocate(bed.domain, 10));
  for (const auto& [first, count] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
           {0, 11}, {11, 0}, {5, 6}, {SIZE_MAX, 2}, {2, SIZE_MAX}})
    CHECK(failure_of(std::move(buffer).part(first, count)) == error_kind::invalid_input);
  CHECK(buffer.size() == 10);  // NOLINT(bugprone-use-after-move): as documented
  CHECK(must(must(std::move(buffer).part(10, 0)).gather()).length() == 0);
}

TEST_CASE("a moved-from part and a part of a moved-from buffer are refused") {
  const testbed bed;
  auto buffer = must(slots::allocate(bed.domain, 10));
  auto part = must(std::move(buffer).part(2, 2));
  check_gone(std::move(buffer).part(0, 1));  // NOLINT(bugprone-use-after-move): intended
  check_gone(std::move(buffer).share());     // NOLINT(bugprone-use-after-move)
  static_cast<void>(emptied(part));
  auto& gone = part;
  CHECK(gone.size() == 0);
  check_gone(gone.gather());
  check_gone(gone.scatter());
  check_gone(gone.remote());
}

TEST_CASE("assigning to a part frees the buffer that it owned") {
  const testbed bed;
  auto first = must(must(slots::allocate(bed.domain, 10)).part(2, 2));
  auto second = must(must(slots::allocate(bed.domain, 20)).part(3, 3));
  const slot* const memory = second.data();
  first = std::move(second);
  CHECK(first.data() == memory);
  CHECK(std::move(first).buffer().size() == 20);
}

TEST_CASE("copies of a shared buffer refer to the same elements") {
  const testbed bed;
  auto buffer = must(slots::allocate(bed.domain, 10));
  const slot* const start = buffer.data();
  const auto shared = must(std::move(buffer).share());
  CHECK(shared.is_only());
  const auto copy = shared;
  CHECK_FALSE(shared.is_only());
  CHECK(copy == shared);
  CHECK(copy.data() == start);
  CHECK(copy.size() == 10);
  CHECK(copy.end() - copy.begin() == 10);
  CHECK(copy.pages() == page_kind::normal);
  CHECK(copy.protection_domain() == bed.domain);
  CHECK(copy.native_handle() == copy.region().native_handle());
  copy[4].count = 5;
  CHECK(shared[4].count == 5);
  CHECK(must(shared.gather()).length() == 10 * sizeof(slot));
  CHECK(must(shared.gather(2, 3)).address() == address_of(start + 2));
  CHECK(must(shared.scatter()).address() == address_of(start));
  CHECK(must(shared.scatter(2, 3)).length() == 3 * sizeof(slot));
  CHECK(shared.gather_unchecked(2, 3).encloses(must(shared.scatter(2, 3))));
  CHECK(shared.scatter_unchecked(2, 3).encloses(must(shared.gather(2, 3))));
  CHECK(must(shared.gather_field(2, &slot::count)).address() == address_of(&start[2].count));
  CHECK(must(shared.scatter_field(2, &slot::state)).length() == sizeof(std::uint32_t));
  CHECK(must(shared.remote()).length() == 10 * sizeof(slot));
  CHECK(failure_of(shared.gather(5, 6)) == error_kind::invalid_input);
  CHECK(failure_of(shared.scatter(11, 0)) == error_kind::invalid_input);
}

TEST_CASE("parts of a shared buffer keep the whole buffer") {
  const testbed bed;
  const slot* start = nullptr;
  std::optional<shared_part<rights, slot>> kept;
  {
    const auto shared = must(must(slots::allocate(bed.domain, 10)).share());
    start = shared.data();
    for (const auto& [first, count] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
             {0, 11}, {11, 0}, {5, 6}, {SIZE_MAX, 2}, {2, SIZE_MAX}})
      CHECK(failure_of(shared.part(first, count)) == error_kind::invalid_input);
    kept = must(shared.part(3, 4));
    CHECK(kept->buffer() == shared);
    CHECK_FALSE(shared.is_only());
  }
  CHECK(kept->buffer().is_only());
  CHECK(kept->size() == 4);
  CHECK(kept->first() == 3);
  CHECK(kept->data() == start + 3);
  CHECK(kept->end() - kept->begin() == 4);
  (*kept)[1].count = 7;
  CHECK(start[4].count == 7);
  CHECK(must(kept->gather()).address() == address_of(start + 3));
  CHECK(must(kept->scatter()).length() == 4 * sizeof(slot));
  CHECK(must(kept->remote()).address() == address_of(start + 3));
  const auto whole = std::move(*kept).buffer();
  CHECK(whole.size() == 10);
}

TEST_CASE("a moved-from handle of shared memory is empty and refused") {
  const testbed bed;
  auto shared = must(must(slots::allocate(bed.domain, 10)).share());
  auto part = must(shared.part(1, 2));
  const auto& gone = emptied(shared);
  CHECK(gone.size() == 0);
  CHECK(gone.data() == nullptr);
  CHECK(gone.begin() == gone.end());
  CHECK(gone.native_handle() == nullptr);
  CHECK_FALSE(gone.is_only());
  CHECK(gone.keep().keeper == nullptr);
  check_gone(gone.gather());
  check_gone(gone.gather(0, 1));
  check_gone(gone.scatter());
  check_gone(gone.scatter(0, 1));
  check_gone(gone.gather_field(0, &slot::count));
  check_gone(gone.scatter_field(0, &slot::count));
  check_gone(gone.remote());
  check_gone(gone.part(0, 1));
  const shared_slots copy = gone;
  CHECK(copy == gone);

  const auto& no_part = emptied(part);
  CHECK(no_part.size() == 0);
  CHECK(no_part.data() == nullptr);
  CHECK(no_part.begin() == no_part.end());
  CHECK(no_part.keep().keeper == nullptr);
  check_gone(no_part.gather());
  check_gone(no_part.scatter());
  check_gone(no_part.remote());
}

TEST_CASE("shared memory is freed when its last handle and its last request release it") {
  const testbed bed;
  const slot* start = nullptr;
  detail::kept_memory first;
  detail::kept_memory second;
  {
    auto shared = must(must(slots::allocate(bed.domain, 10)).share());
    start = shared.data();
    first = shared.keep();
    second = must(shared.part(1, 1)).keep();
    CHECK_FALSE(shared.is_only());
    auto other = shared;
    shared = must(must(slots::allocate(bed.domain, 1)).share());
    CHECK(shared.data() != start);
    CHECK_FALSE(other.is_only());
  }
  CHECK(is_mapped(start));
  CHECK(start[9].count == 0);
  first.let_go();
  CHECK(is_mapped(start));
  second.let_go();
  CHECK_FALSE(is_mapped(start));
}

TEST_CASE_METHOD(two_queue_pairs, "a device fills shared memory that only its request keeps") {
  auto source = must(slots::allocate(bed.domain, 4));
  source[2].count = 22;
  auto target = std::optional(must(must(slots::allocate(bed.domain, 4)).share()));
  const slot* const filled = target->data();
  auto part = std::optional(must(target->part(1, 1)));
  detail::kept_memory kept = part->keep();
  must(right.post_receive({.elements = must(part->scatter())}, {.id = 1}));
  part.reset();
  target.reset();
  must(left.post_send({.elements = must(source.gather(2, 1))}, {.id = 2}));
  take_success(bed.left_queue, 2);
  take_success(bed.right_queue, 1);
  CHECK(filled[1].count == 22);
  kept.let_go();
}

TEST_CASE_METHOD(two_queue_pairs, "a shared read-only buffer can be sent") {
  const auto source =
      must(must(registered_buffer<access::local_read>::allocate(bed.domain, 64)).share());
  source[5] = std::byte{5};
  buffer<> target(bed.domain, 64);
  must(right.post_receive({.elements = target.scatter()}, {.id = 1}));
  must(left.post_send({.elements = must(source.gather())}, {.id = 2}));
  take_success(bed.left_queue, 2);
  take_success(bed.right_queue, 1);
  CHECK(target.bytes()[5] == std::byte{5});
}

TEST_CASE("several threads can share a buffer and the last one frees it") {
  const testbed bed;
  auto shared = must(must(slots::allocate(bed.domain, 10)).share());
  const slot* const start = shared.data();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([own = shared] {
      for (int i = 0; i < 1000; ++i) {
        const auto copy = own;
        detail::kept_memory kept = copy.keep();
        kept.let_go();
      }
    });
  {
    const auto last = std::move(shared);
  }
  for (std::thread& each : threads) each.join();
  threads.clear();
  CHECK_FALSE(is_mapped(start));
}

TEST_CASE("shared memory that cannot be deregistered is reported and never freed") {
  const testbed bed;
  reports = 0;
  const auto before = set_destroy_failure_handler([](const error&) noexcept { ++reports; });
  auto shared = must(must(slots::allocate(bed.domain, 10)).share());
  slot* const start = shared.data();
  ibv_mr* const native = shared.native_handle();
  {
    const failing_verb fails("ibv_dereg_mr", EBUSY);
    const auto last = std::move(shared);
  }
  set_destroy_failure_handler(before);
  CHECK(reports == 1);
  CHECK(is_mapped(start));
  CHECK(ibv_dereg_mr(native) == 0);
  ::munmap(start, page_size());
}
