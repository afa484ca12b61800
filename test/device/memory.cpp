// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"
#include "failing_verb.hpp"
#include "memory_lock_limit.hpp"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <limits>
#include <sstream>

using namespace verbspp;
using namespace verbspp::test;

namespace {

/// A page between two guard pages. Once the page is unmapped, only a mapping of a single page fits
/// into the gap, so it is unlikely that anything else is mapped at this address.
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

/// While an object of this class exists, this thread lacks the privilege to lock more memory than
/// RLIMIT_MEMLOCK permits.
class unprivileged_locking {
 public:
  unprivileged_locking() {
    REQUIRE(::syscall(SYS_capget, &header_, before_.data()) == 0);
    auto fewer = before_;
    fewer[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
    REQUIRE(::syscall(SYS_capset, &header_, fewer.data()) == 0);
  }
  ~unprivileged_locking() { ::syscall(SYS_capset, &header_, before_.data()); }
  unprivileged_locking(const unprivileged_locking&) = delete;
  unprivileged_locking& operator=(const unprivileged_locking&) = delete;

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> before_{};
};

/// Makes the device write `bytes` to the remote memory. Returns the status with which the write
/// completes.
template <class Remote>
work_status write_to(const testbed& bed, const Remote& remote,
                     const std::vector<std::byte>& bytes) {
  auto [left, right] = connect(bed);
  const buffer<> source(bed.domain, bytes);
  must(left.post_write({.elements = source.gather(), .remote = remote}, {.id = 1}));
  return status_of(take_one(bed.left_queue));
}

/// A page of bytes that are initially zero, aligned to its size.
struct alignas(4096) page {
  std::array<std::byte, 4096> bytes{};
};

template <access_flags Rights>
void check_registration(const testbed& bed, std::span<std::byte> memory) {
  INFO(Rights);
  memory_region<Rights> region = must(register_memory<Rights>(bed.domain, memory));
  CHECK(region.length() == memory.size());
  CHECK(region.bytes().data() == memory.data());
  CHECK(region.lkey().value() == region.native_handle()->lkey);
  CHECK(region.protection_domain() == bed.domain);
  CHECK(region.gather().value().length() == memory.size());
  if constexpr (Rights.intersects(access::all_remote)) {
    CHECK(must(region.remote()).rkey().value() == region.native_handle()->rkey);
    CHECK(must(region.remote()).length() == memory.size());
    CHECK(must(region.remote()).address() == reinterpret_cast<std::uintptr_t>(memory.data()));
  }
  CHECK_NOTHROW(must(std::move(region).deregister()));
}

}  // namespace

TEST_CASE("memory can be registered with many combinations of rights") {
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

TEST_CASE("memory of integers and characters can be registered and is counted in bytes") {
  const testbed bed;
  std::vector<std::uint64_t> numbers(10);
  CHECK(must(register_memory<access::local_write>(bed.domain, numbers)).length() == 80);
  const std::array<char, 3> constant{'a', 'b', 'c'};
  CHECK(must(register_memory(bed.domain, constant)).length() == 3);
}

TEST_CASE("the same memory can be registered several times") {
  const testbed bed;
  std::array<std::byte, 64> bytes{};
  const auto first = must(register_memory<access::local_write>(bed.domain, bytes));
  const auto second = must(register_memory<access::remote_read>(bed.domain, bytes));
  CHECK(first.lkey() != second.lkey());
}

TEST_CASE("registering an empty span is refused") {
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

TEST_CASE("read-only memory can be registered for reading but not for local write") {
  const testbed bed;
  const lone_page area(PROT_READ);
  const error e = failure_of(register_memory<access::local_write>(bed.domain, area.bytes()));
  INFO(e);
  CHECK(e == error_kind::driver);
  CHECK(e.native_errno() == EFAULT);
  CHECK_THAT(e.message(), Catch::Contains("read-only"));
  CHECK_NOTHROW(must(register_memory(bed.domain, area.bytes())));
}

TEST_CASE(
    "memory beyond the locked-memory limit is refused and the error gives its size and the limit") {
  if (device_name().starts_with("soft")) SKIP("the software device locks no memory");
  const testbed bed;
  std::vector<std::byte> memory(std::size_t{1} << 20);
  const memory_lock_limit small(65536);
  REQUIRE(small.changed);
  const unprivileged_locking unprivileged;  // root may lock any memory
  const error e = failure_of(register_memory(bed.domain, memory));
  CHECK(e == error_kind::resource_exhausted);
  CHECK(e.native_errno() == ENOMEM);
  CHECK_THAT(e.message(), Catch::Contains("RLIMIT_MEMLOCK") && Catch::Contains("1048576") &&
                              Catch::Contains("65536"));
}

TEST_CASE("elements must lie within their region") {
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
    CHECK(failure_of(must(region.remote()).slice(offset, length)) == error_kind::invalid_input);
  }
  CHECK_THAT(failure_of(region.gather(90, 20)).message(),
             Catch::Contains("20") && Catch::Contains("10"));
}

TEST_CASE("a region that moves stays registered under the same keys") {
  const testbed bed;
  std::array<std::byte, 64> bytes{};
  auto region = must(register_memory<all_rights>(bed.domain, bytes));
  const local_key lkey = region.lkey();
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

TEST_CASE(
    "memory that cannot be locked is refused with the sizes of the request and of the limit") {
  const testbed bed;
  std::vector<std::byte> memory(12345);
  const failing_verb fails("ibv_reg_mr_iova2", ENOMEM);
  const memory_lock_limit limit(65536);
  REQUIRE(limit.changed);
  const error e = failure_of(register_memory(bed.domain, memory));
  CHECK(e == error_kind::resource_exhausted);
  CHECK(e == std::errc::not_enough_memory);
  CHECK_THAT(e.message(), Catch::Contains("RLIMIT_MEMLOCK") && Catch::Contains("12345 requested") &&
                              Catch::Contains("the limit is 65536") &&
                              Catch::Contains("ulimit -l"));
}

TEST_CASE("the error for memory that cannot be locked says if the limit is unlimited") {
  const testbed bed;
  std::array<std::byte, 64> memory{};
  const failing_verb fails("ibv_reg_mr_iova2", ENOMEM);
  const memory_lock_limit none(RLIM_INFINITY);
  if (!none.changed) SKIP("this process may not raise its limit on locked memory");
  const error e = failure_of(register_memory(bed.domain, memory));
  CHECK(e == error_kind::resource_exhausted);
  CHECK_THAT(e.message(), Catch::Contains("RLIMIT_MEMLOCK is unlimited"));
}

TEST_CASE("a region can start at an address chosen by the program") {
  const testbed bed;
  page memory;
  const std::uint64_t own = reinterpret_cast<std::uintptr_t>(memory.bytes.data());
  for (const std::uint64_t start : {std::uint64_t{0}, std::uint64_t{1} << 40, own}) {
    INFO(start);
    memory.bytes.fill(std::byte{0});
    const auto region = must(register_memory_at<all_rights>(bed.domain, start, memory.bytes));
    CHECK(region.start() == start);
    CHECK(region.bytes().data() == memory.bytes.data());
    CHECK(must(region.remote()).address() == start);
    CHECK(must(region.remote()).length() == 4096);
    CHECK(must(region.gather(8, 8)).address() == start + 8);
    CHECK(must(region.scatter(16, 8)).address() == start + 16);
    CHECK(region.gather_unchecked(8, 8).address() == start + 8);

    // Remote operations and scatter-gather elements use addresses that count from the start address
    // that was chosen for the region.
    const std::vector<std::byte> content = pattern(100, 1);
    CHECK(write_to(bed, must(must(region.remote()).slice(1000, 100)), content) ==
          work_status::success);
    CHECK(std::equal(content.begin(), content.end(), memory.bytes.begin() + 1000));
    auto [left, right] = connect(bed);
    must(right.post_receive({.elements = must(region.scatter(2000, 100))}, {.id = 1}));
    must(left.post_send({.elements = must(region.gather(1000, 100))}, {.id = 2}));
    CHECK(take_one(bed.left_queue).is_success());
    CHECK(take_one(bed.right_queue).is_success());
    CHECK(std::equal(content.begin(), content.end(), memory.bytes.begin() + 2000));
  }
}

TEST_CASE("registering at an address that is misaligned with the memory or too high is refused") {
  const testbed bed;
  page memory;
  const auto refusal = [&](std::uint64_t start, std::span<std::byte> bytes) {
    const error e = failure_of(register_memory_at(bed.domain, start, bytes));
    CHECK(e == error_kind::invalid_input);
    CHECK(e.native_errno() == 0);
    return e.message();
  };
  const std::span<std::byte> all(memory.bytes);
  CHECK_THAT(refusal(1, all), Catch::Contains("whole pages") && Catch::Contains("ibv_reg_mr_iova"));
  CHECK_THAT(refusal(0, all.subspan(1)), Catch::Contains("whole pages"));
  CHECK_THAT(refusal(UINT64_MAX - 4094, all.subspan(1)), Catch::Contains("beyond 2^64"));
  CHECK_THAT(refusal(0, {}), Catch::Contains("0 bytes"));
}

TEST_CASE("memory can be registered with relaxed ordering whether the device supports it or not") {
  const testbed bed;
  std::vector<std::byte> memory(200);
  const auto region =
      must(register_memory < all_rights | access::relaxed_ordering > (bed.domain, memory));
  static_assert(decltype(must(region.remote()))::rights ==
                (access::remote_read | access::remote_write));
  const std::vector<std::byte> content = pattern(200, 2);
  CHECK(write_to(bed, must(region.remote()), content) == work_status::success);
  CHECK(memory == content);
}

TEST_CASE(
    "memory is registered on demand or refused with a message if the device does not support "
    "that") {
  const testbed bed;
  const on_demand_paging paging = must(on_demand_paging::query(bed.context));
  std::vector<std::byte> memory(200);
  auto outcome = register_memory < all_rights | access::on_demand > (bed.domain, memory);
  if (!paging.supported) {
    const error e = failure_of(std::move(outcome));
    CHECK(e == error_kind::not_supported);
    CHECK(e.native_errno() == 0);
    CHECK_THAT(e.message(), Catch::Contains("on-demand paging") && Catch::Contains("pinned"));
    CHECK(paging.reliable_connection.empty());
    return;
  }
  const auto region = must(std::move(outcome));
  if (!paging.reliable_connection.contains(on_demand_use::write))
    SKIP("the device does not page on demand for writes");
  const std::vector<std::byte> content = pattern(200, 3);
  CHECK(write_to(bed, must(region.remote()), content) == work_status::success);
  CHECK(memory == content);
}

TEST_CASE("changing the rights of a region succeeds or leaves it unchanged") {
  const testbed bed;
  std::vector<std::byte> memory(64);
  auto region = must(register_memory<access::local_write>(bed.domain, memory));
  auto outcome = std::move(region).change_rights<all_rights>();
  if (outcome.has_error()) {
    CHECK(outcome.error() == error_kind::not_supported);
    CHECK_THAT(outcome.error().message(), Catch::Contains("unchanged"));
    REQUIRE(region.native_handle() != nullptr);
    CHECK_NOTHROW(must(std::move(region).deregister()));
    SKIP("the driver does not change regions");
  }
  CHECK(region.native_handle() == nullptr);
  const auto changed = must(std::move(outcome));
  CHECK(changed.length() == 64);
  CHECK(write_to(bed, must(changed.remote()), pattern(64, 1)) == work_status::success);
  CHECK(memory == pattern(64, 1));
}

TEST_CASE("moving a region to other memory or another domain succeeds or leaves it unchanged") {
  const testbed bed;
  const auto other_domain = must(protection_domain::allocate(bed.context));
  std::vector<std::byte> before(64);
  std::vector<std::byte> after(96);
  auto region = must(register_memory<all_rights>(other_domain, before));
  auto outcome = std::move(region).change_memory(after);
  if (outcome.has_error()) {
    CHECK(outcome.error() == error_kind::not_supported);
    CHECK(region.bytes().data() == before.data());
    CHECK(failure_of(std::move(region).change_protection_domain(bed.domain)) ==
          error_kind::not_supported);
    CHECK(region.protection_domain() == other_domain);
    SKIP("the driver does not change regions");
  }
  auto moved = must(std::move(outcome));
  CHECK(moved.bytes().data() == after.data());
  CHECK(moved.bytes().size() == 96);
  CHECK(must(moved.remote()).address() == reinterpret_cast<std::uintptr_t>(after.data()));
  CHECK(write_to(bed, must(moved.remote()), pattern(96, 1)) == work_status::remote_access_error);
  const auto usable = must(std::move(moved).change_protection_domain(bed.domain));
  CHECK(usable.protection_domain() == bed.domain);
  CHECK(write_to(bed, must(usable.remote()), pattern(96, 1)) == work_status::success);
  CHECK(after == pattern(96, 1));
  CHECK(before == std::vector<std::byte>(64));
}

TEST_CASE("invalid and unsupported changes of a region are refused") {
  const testbed bed;
  const testbed elsewhere;
  std::array<std::byte, 64> bytes{};
  auto region = must(register_memory(bed.domain, bytes));
  CHECK(failure_of(std::move(region).change_memory(std::span<std::byte>())) ==
        error_kind::invalid_input);
  CHECK_THAT(failure_of(std::move(region).change_protection_domain(elsewhere.domain)).message(),
             Catch::Contains("belongs to another context"));
  CHECK(region.native_handle() != nullptr);
  if (!must(on_demand_paging::query(bed.context)).supported)
    CHECK(failure_of(std::move(region).change_rights<access::on_demand>()) ==
          error_kind::not_supported);
  CHECK_NOTHROW(must(std::move(region).deregister()));
  CHECK(failure_of(std::move(region).change_rights<access::local_write>(bytes)) ==
        error_kind::invalid_input);
}

TEST_CASE("a region has the new lkey after its registration was changed") {
  const testbed bed;
  std::vector<std::byte> memory(64);
  auto region = must(register_memory<access::local_write>(bed.domain, memory));
  ibv_mr& native = *region.native_handle();
  const std::uint32_t key = native.lkey;
  const auto changed = [&] {
    // Simulates a driver whose call succeeds and changes the key.
    const failing_reregistration succeeds(0, 0);
    native.lkey = key + 1;
    return must(std::move(region).change_rights<all_rights>());
  }();
  CHECK(changed.lkey() == local_key(key + 1));
  CHECK(must(changed.gather()).native().lkey == key + 1);
  native.lkey = key;
}

TEST_CASE("a region that was moved from or deregistered has no elements") {
  const testbed bed;
  std::vector<std::byte> memory(64);
  auto region = must(register_memory<access::local_write>(bed.domain, memory));
  auto moved_to = std::move(region);
  CHECK(must(moved_to.gather(0, 64)).length() == 64);
  must(std::move(moved_to).deregister());
  for (const auto* gone : {&region, &moved_to}) {
    CHECK(gone->length() == 0);
    CHECK(failure_of(gone->gather(0, 1)) == error_kind::invalid_input);
    CHECK(failure_of(gone->scatter(0, 1)) == error_kind::invalid_input);
  }
}

TEST_CASE("a part of a dma-buf is registered at the requested addresses") {
  const testbed bed;
  constexpr std::size_t size = 8192;
  const dmabuf_stand_in other_device(size);
  const auto check = [&](const dmabuf_range& range, std::uint64_t start) {
    const auto region = must(register_dmabuf<all_rights>(bed.domain, range));
    CHECK(region.start() == start);
    CHECK(region.length() == range.length);
    CHECK(must(region.gather(1, 2)).address() == start + 1);
    const std::vector<std::byte> content = pattern(range.length, 5);
    CHECK(write_to(bed, must(region.remote()), content) == work_status::success);
    CHECK(std::equal(content.begin(), content.end(), other_device.memory() + range.offset));
    std::ostringstream text;
    text << region;
    CHECK_THAT(text.str(), Catch::StartsWith("dma-buf region 0x"));
  };
  const int fd = other_device.file_descriptor();
  check({.file_descriptor = fd, .length = size}, 0);
  check({.file_descriptor = fd, .length = 100, .offset = 4100}, 4100);
  check({.file_descriptor = fd, .length = 100, .offset = 4100, .start = 4}, 4);
}

TEST_CASE("an invalid range of a dma-buf is refused with a message") {
  const testbed bed;
  const dmabuf_stand_in file(4096);  // not a dma-buf
  const auto refused = [&](const dmabuf_range& range) {
    const error e = failure_of(register_dmabuf(bed.domain, range));
    CHECK(e == error_kind::invalid_input);
    CHECK(e.native_errno() == 0);
    return e.message();
  };
  const int fd = file.file_descriptor();
  CHECK_THAT(refused({.file_descriptor = fd, .length = 0}), Catch::Contains("0 bytes"));
  CHECK_THAT(refused({.file_descriptor = -1, .length = 8}), Catch::Contains("file descriptor: -1"));
  CHECK_THAT(refused({.file_descriptor = fd, .length = 8, .offset = 8, .start = 0}),
             Catch::Contains("whole pages"));
}

TEST_CASE("a driver's error about a dma-buf is reported") {
  const testbed bed;
  struct refusal {
    int errnum;
    error_kind kind;
    const char* word;
  };
  for (const refusal& each : {refusal{EOPNOTSUPP, error_kind::not_supported, "5.12"},
                              refusal{EPROTONOSUPPORT, error_kind::not_supported, "5.12"},
                              refusal{EBADF, error_kind::driver, "must be a dma-buf"},
                              refusal{EINVAL, error_kind::invalid_input, "must be a dma-buf"},
                              refusal{ENOMEM, error_kind::resource_exhausted, "out of memory"}}) {
    const failing_verb fails("ibv_reg_dmabuf_mr", each.errnum);
    const error e = failure_of(register_dmabuf(bed.domain, {.file_descriptor = 0, .length = 8}));
    CHECK(e == each.kind);
    CHECK(e.native_errno() == each.errnum);
    CHECK_THAT(e.message(), Catch::Contains("ibv_reg_dmabuf_mr") && Catch::Contains(each.word));
  }
  // Standard input is not a dma-buf. Some devices do not support dma-bufs at all.
  const error e = failure_of(register_dmabuf(bed.domain, {.file_descriptor = 0, .length = 8}));
  INFO(e);
  CHECK(
      (e == error_kind::not_supported || e.native_errno() == EBADF || e.native_errno() == EINVAL));
}

TEST_CASE("a region prints its properties") {
  const testbed bed;
  std::array<std::byte, 64> bytes{};
  auto region = must(register_memory<all_rights>(bed.domain, bytes));
  std::ostringstream text;
  text << region;
  CHECK_THAT(text.str(), Catch::StartsWith("memory region 0x") && Catch::Contains("+64, lkey 0x") &&
                             Catch::Contains("local write|remote write|remote read") &&
                             Catch::Contains(device_name()));
  must(std::move(region).deregister());
  text.str({});
  text << region;
  CHECK(text.str() == "memory region, moved from or deregistered");
}
