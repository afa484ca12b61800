// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"
#include "failing_verb.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

using namespace verbspp;
using namespace verbspp::test;

namespace {

struct slot {
  std::uint32_t state;
  std::uint64_t count;
  std::array<std::uint16_t, 4> marks;
  std::uint32_t tail[2];
};

constexpr access_flags remote_write_rights = all_rights & access::all_remote;

using bytes_buffer = registered_buffer<all_rights>;
using slots_buffer = registered_buffer<all_rights, slot>;

[[nodiscard]] std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

/// Returns true if the page that contains the address is mapped.
[[nodiscard]] bool is_mapped(const void* address) {
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(address) & ~(page_size() - 1);
  unsigned char resident = 0;
  return ::mincore(reinterpret_cast<void*>(page), 1, &resident) == 0;
}

std::string reported;

}  // namespace

TEST_CASE("a registered buffer is registered and its elements are zero") {
  const testbed bed;
  auto buffer = must(slots_buffer::allocate(bed.domain, 100));
  CHECK(buffer.size() == 100);
  CHECK(buffer.end() - buffer.begin() == 100);
  CHECK(std::all_of(buffer.begin(), buffer.end(),
                    [](const slot& each) { return each.state == 0 && each.count == 0; }));
  CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % page_size() == 0);
  CHECK(buffer.region().length() == 100 * sizeof(slot));
  CHECK(static_cast<const void*>(buffer.region().bytes().data()) == buffer.data());
  CHECK(buffer.pages() == page_kind::normal);
  CHECK(buffer.protection_domain() == bed.domain);
  CHECK(buffer.native_handle() == buffer.region().native_handle());
  buffer[7].count = 3;
  CHECK(std::as_const(buffer)[7].count == 3);
}

TEST_CASE("parts of a registered buffer are counted in elements") {
  const testbed bed;
  auto buffer = must(slots_buffer::allocate(bed.domain, 10));
  const auto start = reinterpret_cast<std::uintptr_t>(buffer.data());
  CHECK(must(buffer.gather()).length() == 10 * sizeof(slot));
  CHECK(must(buffer.gather(2, 3)).address() == start + 2 * sizeof(slot));
  CHECK(must(buffer.scatter(2, 3)).length() == 3 * sizeof(slot));
  CHECK(must(buffer.scatter(10, 0)).length() == 0);
  for (const auto& [first, count] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
           {0, 11}, {11, 0}, {5, 6}, {SIZE_MAX, 2}, {2, SIZE_MAX}}) {
    CHECK(failure_of(buffer.gather(first, count)) == error_kind::invalid_input);
    CHECK(failure_of(buffer.scatter(first, count)) == error_kind::invalid_input);
  }
  CHECK_THAT(failure_of(buffer.gather(5, 6)).message(),
             Catch::Contains("6") && Catch::Contains("limit of 5"));
}

TEST_CASE(
    "the unchecked functions of a registered buffer return the same elements as the checked ones") {
  const testbed bed;
  auto buffer = must(slots_buffer::allocate(bed.domain, 10));
  const auto same = [](const gather_element& a, const gather_element& b) {
    return a.encloses(b) && b.encloses(a);
  };
  CHECK(same(buffer.gather_unchecked(2, 3), must(buffer.gather(2, 3))));
  CHECK(same(buffer.scatter_unchecked(9, 1), must(buffer.scatter(9, 1))));
}

TEST_CASE("a field of an element of a registered buffer can be an element of a request") {
  const testbed bed;
  auto buffer = must(slots_buffer::allocate(bed.domain, 4));
  const auto check = [](const gather_element& field, const auto& place) {
    CHECK(field.address() == reinterpret_cast<std::uintptr_t>(&place));
    CHECK(field.length() == sizeof place);
  };
  check(must(buffer.gather_field(0, &slot::state)), buffer[0].state);
  check(must(buffer.gather_field(3, &slot::count)), buffer[3].count);
  check(must(buffer.scatter_field(2, &slot::marks)), buffer[2].marks);
  check(must(buffer.scatter_field(1, &slot::tail)), buffer[1].tail);
  for (const std::size_t index : {std::size_t{4}, SIZE_MAX}) {
    CHECK(failure_of(buffer.gather_field(index, &slot::count)) == error_kind::invalid_input);
    CHECK(failure_of(buffer.scatter_field(index, &slot::count)) == error_kind::invalid_input);
  }
}

TEST_CASE_METHOD(two_queue_pairs,
                 "registered buffers can send and receive and be written field by field") {
  auto source = must(slots_buffer::allocate(bed.domain, 4));
  auto target = must(slots_buffer::allocate(bed.domain, 4));
  source[1] = {.state = 1, .count = 2, .marks = {3, 4, 5, 6}, .tail = {7, 8}};
  must(right.post_receive({.elements = must(target.scatter(2, 1))}, {.id = 1}));
  must(left.post_send({.elements = must(source.gather(1, 1))}, {.id = 2}));
  take_success(bed.left_queue, 2);
  take_success(bed.right_queue, 1);
  CHECK(target[2].count == 2);
  CHECK(target[2].marks[3] == 6);

  const auto remote = must(remote_array<slot, remote_write_rights>::of(must(target.remote())));
  const auto field = must(remote.element(3)).field(&slot::count);
  must(left.post_write({.elements = must(source.gather_field(1, &slot::count)), .remote = field},
                       {.id = 3}));
  take_success(bed.left_queue, 3);
  CHECK(target[3].count == 2);
  CHECK(target[3].state == 0);
  CHECK(target[3].marks[0] == 0);
}

TEST_CASE("a registered buffer has the requested alignment") {
  const testbed bed;
  for (std::size_t alignment = 1; alignment <= std::size_t{1} << 22; alignment *= 4) {
    const auto buffer = must(bytes_buffer::allocate(bed.domain, 5000, {.alignment = alignment}));
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % alignment == 0);
    CHECK(is_mapped(buffer.data() + 4999));
  }
  for (const std::size_t alignment :
       {std::size_t{0}, std::size_t{3}, std::size_t{4097}, SIZE_MAX}) {
    const error e = failure_of(bytes_buffer::allocate(bed.domain, 8, {.alignment = alignment}));
    CHECK(e == error_kind::invalid_input);
    CHECK_THAT(e.message(), Catch::Contains("power of two"));
  }
}

TEST_CASE("a registered buffer works whether it got huge pages or normal ones") {
  const testbed bed;
  for (const std::size_t size : {std::size_t{100}, (std::size_t{1} << 21) + 1}) {
    auto buffer = must(bytes_buffer::allocate(bed.domain, size, {.huge_pages = true}));
    CHECK(buffer.size() == size);
    INFO(to_string(buffer.pages()));
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % (std::size_t{1} << 21) == 0);
    buffer[size - 1] = std::byte{1};
    // The buffer works with either page size.
    auto [left, right] = connect(bed);
    auto other = must(bytes_buffer::allocate(bed.domain, size));
    must(left.post_read({.elements = must(other.scatter()), .remote = must(buffer.remote())},
                        {.id = 1}));
    take_success(bed.left_queue, 1);
    CHECK(other[size - 1] == std::byte{1});
  }
  CHECK(must(bytes_buffer::allocate(bed.domain, 8,
                                    {.alignment = std::size_t{1} << 22, .huge_pages = true}))
            .pages() != page_kind::huge);
}

TEST_CASE("a registered buffer of zero or too many elements is refused") {
  const testbed bed;
  CHECK(failure_of(bytes_buffer::allocate(bed.domain, 0)) == error_kind::invalid_input);
  const error many = failure_of(slots_buffer::allocate(bed.domain, SIZE_MAX / sizeof(slot) + 1));
  CHECK(many == error_kind::invalid_input);
  const error large = failure_of(bytes_buffer::allocate(bed.domain, std::size_t{1} << 60));
  INFO(large);
  CHECK(large == error_kind::resource_exhausted);
  CHECK(large.operation() == std::string("mmap"));
  CHECK(failure_of(bytes_buffer::allocate(bed.domain, std::size_t{1} << 60,
                                          {.huge_pages = true})) == error_kind::resource_exhausted);
}

TEST_CASE("a registered buffer that moves keeps its memory and keys") {
  const testbed bed;
  auto first = must(bytes_buffer::allocate(bed.domain, 100));
  const std::byte* const place = first.data();
  const local_key lkey = first.region().lkey();
  auto second = std::move(first);
  CHECK(second.data() == place);
  CHECK(second.region().lkey() == lkey);
  auto third = must(bytes_buffer::allocate(bed.domain, 10));
  third = std::move(second);
  CHECK(third.data() == place);
  CHECK(third.size() == 100);
  CHECK(is_mapped(place));
}

TEST_CASE("the memory of a registered buffer is freed after it is deregistered") {
  const testbed bed;
  const std::byte* place = nullptr;
  bool mapped_at_deregistration = false;
  {
    const auto buffer = must(bytes_buffer::allocate(bed.domain, 100));
    place = buffer.data();
    before_next_dereg_mr([&] { mapped_at_deregistration = is_mapped(place); });
  }
  CHECK(mapped_at_deregistration);
  CHECK_FALSE(is_mapped(place));
  {
    auto buffer = must(bytes_buffer::allocate(bed.domain, 100));
    place = buffer.data();
    must(std::move(buffer).release());
    CHECK_FALSE(is_mapped(place));
    CHECK(buffer.size() == 0);
  }
}

TEST_CASE("the memory of a registered buffer that cannot be deregistered is not freed") {
  const testbed bed;
  const auto before =
      set_destroy_failure_handler([](const error& cause) noexcept { reported += cause.message(); });
  reported.clear();
  std::byte* destroyed = nullptr;
  std::byte* released = nullptr;
  std::array<ibv_mr*, 2> left{};
  {
    auto first = std::make_unique<bytes_buffer>(must(bytes_buffer::allocate(bed.domain, 100)));
    auto second = must(bytes_buffer::allocate(bed.domain, 100));
    destroyed = first->data();
    released = second.data();
    left = {first->native_handle(), second.native_handle()};
    const failing_verb fails("ibv_dereg_mr", EBUSY);
    first.reset();
    CHECK_THAT(reported, Catch::Contains("ibv_dereg_mr") && Catch::Contains("EBUSY") &&
                             Catch::Contains("so it is never freed"));
    reported.clear();
    CHECK(failure_of(std::move(second).release()) == error_kind::busy);
  }
  CHECK(reported.empty());
  set_destroy_failure_handler(before);
  CHECK(is_mapped(destroyed));
  CHECK(is_mapped(released));
  for (ibv_mr* const each : left) CHECK(ibv_dereg_mr(each) == 0);
  ::munmap(destroyed, page_size());
  ::munmap(released, page_size());
}

TEST_CASE("a registered buffer that cannot be registered leaves no memory behind") {
  const testbed bed;
  const failing_verb fails("ibv_reg_mr_iova2", ENOMEM);
  constexpr int attempts = 100;
  constexpr std::size_t size = std::size_t{1} << 26;
  const auto mapped_pages = [] {
    std::ifstream file("/proc/self/statm");
    std::size_t pages = 0;
    REQUIRE(file >> pages);
    return pages;
  };
  const std::size_t before = mapped_pages();
  for (int i = 0; i < attempts; ++i)
    CHECK(failure_of(bytes_buffer::allocate(bed.domain, size)) == error_kind::resource_exhausted);
  CHECK(fails.calls() == attempts);
  // Other threads of the process may map memory in the meantime, but less than this.
  CHECK(mapped_pages() < before + attempts / 2 * size / page_size());
}

TEST_CASE("a registered buffer prints its properties") {
  const testbed bed;
  const auto buffer = must(bytes_buffer::allocate(bed.domain, 64));
  std::ostringstream text;
  text << buffer;
  CHECK_THAT(text.str(), Catch::Contains("+64, lkey 0x") && Catch::EndsWith("normal pages"));
}
