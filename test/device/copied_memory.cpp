// SPDX-License-Identifier: Apache-2.0
// Calls that lend a copy of the program's memory, so that this memory need not be registered.

#include "failing_verb.hpp"
#include "lending.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

/// A service, and a caller that copies memory of at most `size` bytes. The caller's lane is
/// connected.
struct copying_calls {
  static constexpr std::uint32_t most = 1000;

  explicit copying_calls(std::uint32_t size = most)
      : calls(serving.call({.copied_size = size})),
        has_windows(memory_window<memory_window_type::type_2>::create(bed.domain).has_value()) {
    std::array<std::byte, 1> some{};
    must(calls.call<fill>(1, some, patience));
    copied_before = calls.statistics().copied_bytes;
  }
  /// The bytes that were copied since the lane was connected.
  [[nodiscard]] std::uint64_t copied() const {
    return calls.statistics().copied_bytes - copied_before;
  }
  /// Returns `size`, or 0 on devices without memory windows, where nothing is copied.
  [[nodiscard]] std::uint64_t if_copied(std::uint64_t size) const { return has_windows ? size : 0; }

  const testbed bed{};
  lending_service serving{bed};
  caller calls;
  bool has_windows;
  std::uint64_t copied_before = 0;
};

/// Calls `keep` with the memory `own`. Another thread passes the received call to `serve`.
template <class Serve>
[[nodiscard]] result<std::uint32_t> call_served_by(Serve serve, copying_calls& all,
                                                   std::vector<std::byte>& own) {
  std::thread serving([&] { serve(all.serving.take_kept()); });
  const auto answer = all.calls.call<keep>(1, own, patience);
  serving.join();
  return answer;
}

/// Makes the device reject requests that invalidate a memory window.
class rejected_invalidation {
 public:
  explicit rejected_invalidation(const context& of) : post_(of.native_handle()->ops.post_send) {
    real = post_;
    post_ = [](ibv_qp* pair, ibv_send_wr* list, ibv_send_wr** rejected) {
      if (list->opcode != IBV_WR_LOCAL_INV) return real(pair, list, rejected);
      *rejected = list;
      return ENOMEM;
    };
  }
  rejected_invalidation(const rejected_invalidation&) = delete;
  rejected_invalidation& operator=(const rejected_invalidation&) = delete;
  ~rejected_invalidation() { post_ = real; }

 private:
  using post_function = decltype(ibv_context_ops::post_send);
  static inline post_function real = nullptr;
  post_function& post_;
};

}  // namespace

TEST_CASE("small memory of the program is copied, and larger memory is registered") {
  copying_calls all;
  SECTION("up to the limit") {
    std::vector<std::byte> own(copying_calls::most, std::byte{2});
    CHECK(must(all.calls.call<add_up>(64, own, patience)) == 2 * own.size());
    CHECK(must(all.calls.call<fill>(7, own, patience)) == own.size());
    CHECK(all_are(own, 7));
    CHECK(all.copied() == all.if_copied(2 * own.size()));
    std::ostringstream text;
    text << all.calls;
    CHECK_THAT(text.str(), Catch::Contains("lent: 2001 bytes"));
  }
  SECTION("above the limit") {
    std::vector<std::byte> own(copying_calls::most + 1, std::byte{2});
    CHECK(must(all.calls.call<fill>(7, own, patience)) == own.size());
    CHECK(all_are(own, 7));
    CHECK(all.copied() == 0);
  }
  SECTION("constant memory") {
    const std::array<std::uint8_t, 3> own{1, 2, 3};
    CHECK(must(all.calls.call<add_up>(64, own, patience)) == 6);
    CHECK(all.copied() == all.if_copied(3));
  }
  SECTION("a buffer whose registration grants the peer no access") {
    auto own = filled<plain_memory>(all.bed, 100, std::byte{2});
    CHECK(must(all.calls.call<fill>(7, own, patience)) == 100);
    CHECK(all_are(own, 7));
    CHECK(all.copied() == all.if_copied(100));
  }
  SECTION("memory that is lent by a window is not copied") {
    auto own = filled<window_memory>(all.bed, 100, std::byte{2});
    CHECK(must(all.calls.call<fill>(7, own, patience)) == 100);
    CHECK(all_are(own, 7));
    CHECK(all.copied() == 0);
  }
  SECTION("shared memory is not copied") {
    const auto own = must(filled<plain_memory>(all.bed, 100, std::byte{2}).share());
    auto posted = must(all.calls.post_call<fill>(7, own));
    CHECK(must(posted.wait(patience)) == 100);
    CHECK(all_are(own, 7));
    CHECK(all.copied() == 0);
  }
  CHECK(all.calls.statistics().lanes == 1);
}

TEST_CASE("a caller with a copied size of 0 copies nothing") {
  copying_calls all(0);
  std::vector<std::byte> own(10, std::byte{2});
  CHECK(must(all.calls.call<fill>(7, own, patience)) == own.size());
  CHECK(all_are(own, 7));
  CHECK(all.calls.statistics().copied_bytes == 0);
}

TEST_CASE("bytes that a service does not write keep their values") {
  copying_calls all;
  std::vector<std::byte> own(100, std::byte{2});
  const auto serve = [&all](received_call<keep> kept) {
    auto part = filled<plain_memory>(all.bed, 10, std::byte{9});
    if (kept.write(part, 20, patience).has_value()) static_cast<void>(kept.answer(1));
  };
  CHECK(must(call_served_by(serve, all, own)) == 1);
  const std::span all_bytes(own);
  CHECK(all_are(all_bytes.first(20), 2));
  CHECK(all_are(all_bytes.subspan(20, 10), 9));
  CHECK(all_are(all_bytes.subspan(30), 2));
}

TEST_CASE("bytes that a service writes before it refuses a call are copied back") {
  copying_calls all;
  std::vector<std::byte> own(100, std::byte{2});
  const auto serve = [&all](received_call<keep> kept) {
    auto part = filled<plain_memory>(all.bed, 100, std::byte{9});
    static_cast<void>(kept.write(part, 0, patience));
    kept.refuse(error_kind::busy, "half done");
  };
  CHECK(is_refusal(failure_of(call_served_by(serve, all, own))));
  CHECK(all_are(own, 9));
}

TEST_CASE("on a device without memory windows, memory is registered instead of copied") {
  copying_calls all;
  std::vector<std::byte> own(100, std::byte{2});
  const failing_operation refused(all.bed.context.native_handle()->ops.alloc_mw, EOPNOTSUPP,
                                  convention::null);
  // The lane of the first caller already has a window, which it would reuse without calling
  // alloc_mw. So this test uses another caller.
  auto other = all.serving.call({.copied_size = copying_calls::most});
  for (int i = 0; i < 2; ++i) {
    CHECK(must(other.call<fill>(static_cast<std::uint8_t>(i), own, patience)) == own.size());
    CHECK(all_are(own, static_cast<unsigned>(i)));
  }
  CHECK(other.statistics().copied_bytes == 0);
  CHECK(refused.calls() == (all.has_windows ? 1 : 0));
}

TEST_CASE("a copy is not used again if the device has failed to revoke the access to it") {
  if (!device_name().starts_with("soft"))
    SKIP("with this driver, LeakSanitizer would report memory that the test leaks on purpose");
  static int reports = 0;
  static std::atomic<int> registrations = 0;
  reports = 0;
  std::vector<std::byte> own(100, std::byte{2});
  {
    copying_calls all;
    // The memory that stays registered also prevents the domain from being released.
    set_destroy_failure_handler([](const error&) noexcept { ++reports; });
    {
      const rejected_invalidation rejected(all.bed.context);
      const failing_operation refused(all.bed.context.native_handle()->ops.dealloc_mw, EIO,
                                      convention::returns_errno);
      CHECK(failure_of(all.calls.call<keep>(1, own, 10ms)) == error_kind::timed_out);
      CHECK(refused.calls() == 1);
    }
    CHECK(reports == 1);
    CHECK(all_are(own, 2));
    registrations = 0;
    set_object_trace_handler([](const char* call, const void*, std::uint32_t) noexcept {
      registrations += call == std::string_view("ibv_reg_mr");
    });
    CHECK(must(all.calls.call<add_up>(64, own, patience)) == 200);
    set_object_trace_handler(nullptr);
    CHECK(registrations == 1);
    static_cast<void>(all.serving.take_kept());
  }
  set_destroy_failure_handler(nullptr);
}

TEST_CASE("after a call could not be sent, its memory is no longer lent") {
  copying_calls all(0);
  std::vector<std::byte> own(100, std::byte{2});
  const int objects = live_objects();
  {
    const failing_operation refused(all.bed.context.native_handle()->ops.post_send, ENOMEM,
                                    convention::returns_errno);
    CHECK(failure_of(all.calls.call<fill>(7, own, patience)).native_errno() == ENOMEM);
  }
  // The memory was deregistered. The service does not know of the call, so the lane remains usable.
  CHECK(live_objects() == objects);
  CHECK(must(all.calls.call<fill>(7, own, patience)) == own.size());
  CHECK(all_are(own, 7));
  CHECK(all.calls.statistics().lanes == 1);
}
