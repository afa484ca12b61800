// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// A page of its own, between two that keep its neighbours away: what is unmapped here stays so,
/// since nobody else's mapping fits into the gap.
class lone_page {
 public:
  explicit lone_page(int protection)
      : size_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))),
        all_(::mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(all_ != MAP_FAILED);
    REQUIRE(::mprotect(bytes().data(), size_, protection) == 0);
  }
  ~lone_page() { ::munmap(all_, 3 * size_); }
  lone_page(const lone_page&) = delete;
  lone_page& operator=(const lone_page&) = delete;

  void unmap() { REQUIRE(::munmap(bytes().data(), size_) == 0); }
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(all_) + size_, size_};
  }

 private:
  std::size_t size_;
  void* all_;
};

template <access_flags Rights>
void check_registration(const testbed& bed, std::span<std::byte> memory) {
  INFO(Rights);
  memory_region<Rights> region = must(register_memory<Rights>(bed.domain, memory));
  CHECK(region.length() == memory.size());
  CHECK(region.bytes().data() == memory.data());
  CHECK(region.lkey() == region.native_handle()->lkey);
  CHECK(region.protection_domain() == bed.domain);
  CHECK(region.gather().value().length() == memory.size());
  if constexpr (Rights.intersects(access::all_remote)) {
    CHECK(region.remote().rkey() == region.native_handle()->rkey);
    CHECK(region.remote().length() == memory.size());
    CHECK(region.remote().address() == reinterpret_cast<std::uintptr_t>(memory.data()));
  }
  CHECK_NOTHROW(must(std::move(region).deregister()));
}

}  // namespace

TEST_CASE("memory can be registered with each combination of rights") {
  const testbed bed;
  std::array<std::byte, 256> bytes{};
  const std::span<std::byte> memory(bytes);
  using namespace access;
  check_registration<local_read>(bed, memory);
  check_registration<local_write>(bed, memory);
  check_registration<remote_read>(bed, memory);
  check_registration<local_write | remote_read>(bed, memory);
  check_registration<local_write | remote_write>(bed, memory);
  check_registration<local_write | remote_read | remote_write>(bed, memory);
  if (bed.limits.atomic_cap != IBV_ATOMIC_NONE) {
    check_registration<local_write | remote_atomic>(bed, memory);
    check_registration<local_write | remote_read | remote_atomic>(bed, memory);
    check_registration<local_write | remote_write | remote_atomic>(bed, memory);
    check_registration<local_write | all_remote>(bed, memory);
  }
}

TEST_CASE("memory of any trivially copyable objects can be registered, counted in bytes") {
  const testbed bed;
  std::vector<std::uint64_t> numbers(10);
  CHECK(must(register_memory<access::local_write>(bed.domain, numbers)).length() == 80);
  const std::array<char, 3> constant{'a', 'b', 'c'};
  CHECK(must(register_memory(bed.domain, constant)).length() == 3);
}

TEST_CASE("one memory can be registered several times") {
  const testbed bed;
  std::array<std::byte, 64> bytes{};
  const auto first = must(register_memory<access::local_write>(bed.domain, bytes));
  const auto second = must(register_memory<access::remote_read>(bed.domain, bytes));
  CHECK(first.lkey() != second.lkey());
}

TEST_CASE("an empty span cannot be registered") {
  const testbed bed;
  const error e = failure_of(register_memory(bed.domain, std::span<std::byte>{}));
  CHECK(e == error_kind::invalid_input);
  CHECK(e.native_errno() == 0);
}

TEST_CASE("unmapped memory cannot be registered") {
  const testbed bed;
  lone_page area(PROT_READ | PROT_WRITE);
  const std::span<std::byte> gone = area.bytes();
  area.unmap();
  for (const error& e : {failure_of(register_memory(bed.domain, gone)),
                         failure_of(register_memory<access::local_write>(bed.domain, gone))}) {
    INFO(e);
    CHECK(e == error_kind::driver);
    CHECK(e.native_errno() == EFAULT);
    CHECK(e.hint() != nullptr);
  }
}

TEST_CASE("read-only memory can be registered for reading, but not for local write") {
  const testbed bed;
  const lone_page area(PROT_READ);
  const error e = failure_of(register_memory<access::local_write>(bed.domain, area.bytes()));
  INFO(e);
  CHECK(e == error_kind::driver);
  CHECK(e.native_errno() == EFAULT);
  CHECK_THAT(e.message(), Catch::Contains("read-only"));
  CHECK_NOTHROW(must(register_memory(bed.domain, area.bytes())));
}

TEST_CASE("memory beyond the locked-memory limit is refused with both sizes") {
  if (::geteuid() == 0) SKIP("the limit does not hold for root");
  if (device_name().starts_with("soft")) SKIP("the software device locks no memory");
  const testbed bed;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
  const rlimit small{std::min<rlim_t>(before.rlim_cur, 65536), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &small) == 0);
  std::vector<std::byte> memory(std::size_t{1} << 20);
  const auto outcome = register_memory(bed.domain, memory);
  REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &before) == 0);
  const error e =
      failure_of(outcome.has_value() ? result<void>(success()) : result<void>(outcome.error()));
  CHECK(e == error_kind::resource_exhausted);
  CHECK_THAT(e.message(), Catch::Contains("RLIMIT_MEMLOCK") && Catch::Contains("1048576") &&
                              Catch::Contains(std::to_string(small.rlim_cur)));
}

TEST_CASE("elements have to lie within their region") {
  const testbed bed;
  buffer<> memory(bed.domain, 100);
  const auto& region = memory.region();
  const auto start = reinterpret_cast<std::uintptr_t>(memory.bytes().data());

  const gather_element whole = must(region.gather());
  CHECK(whole.address() == start);
  CHECK(whole.length() == 100);
  CHECK(whole.lkey() == region.lkey());
  const scatter_element part = must(region.scatter(10, 90));
  CHECK(part.address() == start + 10);
  CHECK(part.length() == 90);
  CHECK(must(region.gather(100, 0)).length() == 0);
  CHECK(must(region.scatter(0, 0)).address() == start);

  constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
  const std::array<std::pair<std::size_t, std::size_t>, 6> outside{
      {{0, 101}, {1, 100}, {100, 1}, {101, 0}, {huge, 2}, {2, huge}}};
  for (const auto& [offset, length] : outside) {
    INFO(offset << "+" << length);
    CHECK(failure_of(region.gather(offset, length)) == error_kind::invalid_input);
    CHECK(failure_of(region.scatter(offset, length)) == error_kind::invalid_input);
    CHECK(failure_of(region.remote().slice(offset, length)) == error_kind::invalid_input);
  }
  CHECK_THAT(failure_of(region.gather(90, 20)).message(),
             Catch::Contains("20") && Catch::Contains("10"));
}

TEST_CASE("a region that moves stays registered under the same keys") {
  const testbed bed;
  std::array<std::byte, 64> bytes{};
  auto region = must(register_memory<all_rights>(bed.domain, bytes));
  const std::uint32_t lkey = region.lkey();
  auto moved = std::move(region);
  CHECK(moved.lkey() == lkey);
  auto other = must(register_memory<all_rights>(bed.domain, bytes));
  other = std::move(moved);
  CHECK(other.lkey() == lkey);
  CHECK_NOTHROW(must(std::move(other).deregister()));
}

TEST_CASE("a region keeps its protection domain and context alive") {
  const release_watch watch;
  std::array<std::byte, 64> bytes{};
  const auto region = [&] {
    const context opened = must(open_device(device_name()));
    return must(register_memory(must(protection_domain::allocate(opened)), bytes));
  }();
  CHECK_NOTHROW(must(region.protection_domain().context().query_device()));
}
