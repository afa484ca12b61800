// SPDX-License-Identifier: Apache-2.0
/// \file
/// Memory windows: calls that are refused by the library, the device or the driver.
#include "failing_verb.hpp"
#include "memory_windows.hpp"

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace verbspp::test::windows {

namespace {

/// Replaces one of the driver's functions, which inline functions in libibverbs call through a
/// pointer. The replacement lasts for the lifetime of this object.
template <class Function>
class replaced {
 public:
  replaced(Function& place, Function by) : place_(place), before_(std::exchange(place, by)) {}
  ~replaced() { place_ = before_; }
  replaced(const replaced&) = delete;
  replaced& operator=(const replaced&) = delete;

 private:
  Function& place_;
  Function before_;
};

int next_errno = 0;  // the errno value that the replacements report

ibv_mw* fail_to_allocate(ibv_pd*, ibv_mw_type) {
  errno = next_errno;
  return nullptr;
}
int fail_to_bind(ibv_qp*, ibv_mw*, ibv_mw_bind*) { return next_errno; }
int fail_to_deallocate(ibv_mw*) { return next_errno; }
int fail_to_post(ibv_qp*, ibv_send_wr* first, ibv_send_wr** rejected) {
  *rejected = first;
  return next_errno;
}

}  // namespace

TEST_CASE("a window and a region of different domains are refused before the device is called") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    const auto elsewhere = must(protection_domain::allocate(bed.context));
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(elsewhere);
    const remote_key before = window->rkey();
    const error e =
        failure_of(pair.right.post_bind(*window, part_of<both_ways>(memory, 0, 64), {.id = 1}));
    CHECK(e == error_kind::invalid_input);
    CHECK(e.native_errno() == 0);
    CHECK_THAT(e.message(), Catch::Contains("different protection domains"));
    CHECK(window->rkey() == before);
    CHECK(count_within_a_moment(bed.right_queue) == 0);
  });
}

TEST_CASE("a bind by a queue pair of another domain fails") {
  const testbed bed;
  const auto elsewhere = must(protection_domain::allocate(bed.context));
  connected_pair pair = connect(bed);
  shown_memory memory(elsewhere, 64);
  // Not every device checks the protection domain of windows of type 1.
  auto window = window_of<type_2>(elsewhere);
  must(pair.right.post_bind(*window, part_of<both_ways>(memory, 0, 64), {.id = 1}));
  const work_error refused = failure_of(take_one(bed.right_queue).get());
  CHECK(refused.status() == work_status::memory_window_bind_error);
  CHECK_THAT(refused.message(), Catch::Contains("belong to the same protection domain"));
}

TEST_CASE(
    "a bind to a region that was not registered for it fails even if its type claims the right") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    std::vector<std::byte> bytes(64);
    const auto without_bind = must(register_memory<access::local_write>(bed.domain, bytes));
    const auto without_write = must(register_memory<access::window_bind>(bed.domain, bytes));
    for (ibv_mr* const region : {without_bind.native_handle(), without_write.native_handle()}) {
      connected_pair pair = connect(bed);
      auto window = window_of<Type>(bed.domain);
      const auto part = window_part<access::remote_write>::from_native(
          region, reinterpret_cast<std::uintptr_t>(bytes.data()), 64);
      must(pair.right.post_bind(*window, part, {.id = 1}));
      const work_completion refused = take_one(bed.right_queue);
      CHECK(refused.wr_id() == 1);
      CHECK(status_of(refused) == work_status::memory_window_bind_error);
      wait_for_error_state(pair.right);
    }
  });
}

TEST_CASE_METHOD(two_queue_pairs, "binding a type 2 window to zero bytes is refused") {
  shown_memory memory(bed.domain, 64);
  auto window = window_of<type_2>(bed.domain);
  const error e =
      failure_of(pair.right.post_bind(*window, part_of<both_ways>(memory, 0, 0), {.id = 1}));
  CHECK(e == error_kind::invalid_input);
  CHECK(e.native_errno() == 0);
  CHECK_THAT(e.message(),
             Catch::Contains("bind memory window") && Catch::Contains("invalidating its rkey"));
}

TEST_CASE("a driver's refusal to bind is reported and leaves the window unchanged") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto window = window_of<Type>(bed.domain);
    const auto part = part_of<both_ways>(memory, 0, 64);
    const remote_key before = window->rkey();
    ibv_context_ops& driver = bed.context.native_handle()->ops;
    for (const auto& [errnum, kind] :
         {std::pair{ENOMEM, error_kind::would_block}, std::pair{EINVAL, error_kind::invalid_input},
          std::pair{EOPNOTSUPP, error_kind::not_supported}}) {
      next_errno = errnum;
      const replaced bind_fails(driver.bind_mw, &fail_to_bind);
      const replaced post_fails(driver.post_send, &fail_to_post);
      const error e = failure_of(pair.right.post_bind(*window, part, {.id = 1}));
      CHECK(e == kind);
      CHECK(e.native_errno() == errnum);
      CHECK(e.operation() ==
            std::string(Type == type_1 ? "ibv_bind_mw" : "ibv_post_send (bind memory window)"));
      CHECK(window->rkey() == before);
    }
    bind(pair.right, *window, part);
  });
}

TEST_CASE("a failed bind and the bind after it are both reported") {
  for_each_type([]<memory_window_type Type>() {
    const testbed bed;
    connected_pair pair = connect(bed);
    shown_memory memory(bed.domain, 64);
    auto first = window_of<Type>(bed.domain);
    auto second = window_of<Type>(bed.domain);
    const auto part = part_of<both_ways>(memory, 0, 64);
    const failing_device fails("send-completion=mw-bind-err");
    must(pair.right.post_bind(*first, part, {.id = 1}));
    must(pair.right.post_bind(*second, part, {.id = 2}));
    CHECK(status_of(take_one(bed.right_queue)) == work_status::memory_window_bind_error);
    CHECK(status_of(take_one(bed.right_queue)) == work_status::flushed);
  });
}

TEST_CASE("the error about a missing window type names the available type") {
  const testbed bed;
  constexpr unsigned first = IBV_DEVICE_MEM_WINDOW;
  constexpr unsigned second = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  ibv_context_ops& driver = bed.context.native_handle()->ops;
  const auto refusal = [&](auto create, unsigned claimed_flags, int errnum) {
    next_errno = errnum;
    const replaced fails(driver.alloc_mw, &fail_to_allocate);
    const claimed_capabilities claims(first | second, claimed_flags);
    const error e = failure_of(create(bed.domain));
    CHECK(e.native_errno() == errnum);
    CHECK(e.operation() == std::string("ibv_alloc_mw"));
    return e;
  };
  for (const int errnum : {EOPNOTSUPP, EINVAL, ENOSYS}) {
    INFO(errnum);
    const error none = refusal(first_type::create, 0, errnum);
    CHECK(none == error_kind::not_supported);
    CHECK_THAT(none.message(), Catch::Contains("no memory windows: register a region"));
    const error only_first = refusal(second_type::create, first, errnum);
    CHECK(only_first == error_kind::not_supported);
    CHECK_THAT(only_first.message(), Catch::Contains("of type 1 only"));
    const error only_second = refusal(first_type::create, second, errnum);
    CHECK(only_second == error_kind::not_supported);
    CHECK_THAT(only_second.message(), Catch::Contains("of type 2 only"));
  }
  const error empty_claim = refusal(second_type::create, first | second, EOPNOTSUPP);
  CHECK(empty_claim == error_kind::not_supported);
  CHECK_THAT(empty_claim.message(), Catch::Contains("its driver does not support them"));
  // Errors with other causes are reported unchanged.
  CHECK(refusal(second_type::create, first | second, EINVAL) == error_kind::invalid_input);
  CHECK(refusal(second_type::create, 0, ENOMEM) == error_kind::resource_exhausted);

  // If a context lacks this function, `ibv_alloc_mw` fails with EOPNOTSUPP.
  const replaced missing(driver.alloc_mw, decltype(driver.alloc_mw){nullptr});
  CHECK(failure_of(first_type::create(bed.domain)) == error_kind::not_supported);
}

TEST_CASE("a failure to release a window is reported") {
  const testbed bed;
  auto window = window_of<type_1>(bed.domain);
  ibv_mw* const native = window->native_handle();
  reports.clear();
  const destroy_failure_handler before = set_destroy_failure_handler(
      [](const error& cause) noexcept { reports.push_back(cause.message()); });
  {
    next_errno = EBUSY;
    const replaced fails(bed.context.native_handle()->ops.dealloc_mw, &fail_to_deallocate);
    window.reset();
  }
  set_destroy_failure_handler(before);
  REQUIRE(reports.size() == 1);
  CHECK_THAT(reports.front(), Catch::Contains("ibv_dealloc_mw") && Catch::Contains("EBUSY") &&
                                  Catch::Contains("peers may still have access"));
  CHECK(ibv_dealloc_mw(native) == 0);
}

}  // namespace verbspp::test::windows
