// SPDX-License-Identifier: Apache-2.0
/// \file
/// Memory that requests own when the device neither stops nor destroys their queue pair. The device
/// may then write to the memory at any time, so the memory must not be freed or returned before the
/// queue pair is destroyed.

#include "../eager.hpp"
#include "../sanitized.hpp"
#include "channels.hpp"
#include "failing_verb.hpp"
#include <verbspp/coroutine.hpp>

#include <cerrno>
#include <optional>
#include <utility>

namespace verbspp::test {

namespace {

/// Memory that a request can own. It counts how often its bytes were released.
class counted_memory {
 public:
  counted_memory(buffer<>& bytes, int& released) : bytes_(&bytes), released_(&released) {}
  counted_memory(counted_memory&& other) noexcept
      : bytes_(std::exchange(other.bytes_, nullptr)), released_(other.released_) {}
  counted_memory& operator=(counted_memory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(released_, other.released_);
    return *this;
  }
  ~counted_memory() {
    if (has_bytes()) ++*released_;
  }

  [[nodiscard]] bool has_bytes() const { return bytes_ != nullptr; }
  [[nodiscard]] result<gather_element> gather() const { return bytes_->gather(); }
  [[nodiscard]] result<scatter_element> scatter() { return bytes_->scatter(); }

 private:
  buffer<>* bytes_;
  int* released_;
};

}  // namespace

}  // namespace verbspp::test

template <>
inline constexpr bool verbspp::enable_work_memory<verbspp::test::counted_memory> = true;

namespace verbspp::test {

namespace {

using owning = pending<counted_memory>;
using outcome = finished<counted_memory>;

/// While this object exists, the device neither stops nor destroys queue pairs.
struct stuck_device {
  failing_verb modify{"ibv_modify_qp", EIO};
  failing_verb destroy{"ibv_destroy_qp", EIO};
};

struct receiving_channel : two_channels {
  [[nodiscard]] counted_memory memory() { return {bytes, released}; }
  [[nodiscard]] owning receive() { return must(left.post_receive(memory())); }
  /// Closes the channel while the device fails to end its queue pair.
  void lose() {
    const stuck_device stuck;
    CHECK(failure_of(left.close(short_limit)).native_errno() == EIO);
    CHECK(stuck.destroy.calls() == 1);
  }
  [[nodiscard]] eager<outcome> await_receive() { co_return co_await left.async_receive(memory()); }

  buffer<> bytes{bed.domain, 64};
  int released = 0;
};

void check_lost(const outcome& done) {
  CHECK_FALSE(done.memory.has_bytes());
  const error failed = failure_of(done.result);
  CHECK(failed == error_kind::driver);
  CHECK(failed.native_errno() == EIO);
  CHECK_THAT(failed.message(), Catch::Contains("ibv_destroy_qp") && Catch::Contains("never freed"));
}

}  // namespace

TEST_CASE_METHOD(receiving_channel, "a request that the device has flushed returns its memory") {
  auto work = receive();
  must(left.close(patience));
  const outcome done = work.wait();
  const transport_error failed = failure_of(done.result);
  REQUIRE(failed.work() != nullptr);
  CHECK(failed.work()->status() == work_status::flushed);
  CHECK(done.memory.has_bytes());
}

TEST_CASE_METHOD(receiving_channel,
                 "memory is returned if the queue pair is destroyed at the second attempt") {
  auto work = receive();
  lose();
  left = channel();
  const outcome done = work.wait();
  CHECK(error(failure_of(done.result)) == error_kind::not_connected);
  CHECK(done.memory.has_bytes());
}

TEST_CASE_METHOD(receiving_channel, "memory is not returned if the device may still write to it") {
  SECTION("from wait, whose limit breaks the channel") {
    auto work = receive();
    const stuck_device stuck;
    check_lost(work.wait(short_limit));
  }
  SECTION("from wait, after the channel was closed") {
    auto work = receive();
    lose();
    check_lost(work.wait());
  }
  SECTION("from poll") {
    auto work = receive();
    lose();
    auto done = work.poll();
    REQUIRE(done);
    check_lost(*done);
  }
  SECTION("when the handle is destroyed") {
    {
      const auto work = receive();
      lose();
    }
  }
  SECTION("when the handle is destroyed, which breaks the channel") {
    channel_pair impatient =
        connect_channels(bed.domain.build_channel().default_limit(short_limit));
    auto work = must(impatient.left.post_receive(memory()));
    const stuck_device stuck;
    {
      const owning dropped = std::move(work);
    }
  }
  SECTION("when the handle is assigned to") {
    auto work = receive();
    lose();
    buffer<> more{bed.domain, 64};
    int released_too = 0;
    work = must(right.post_receive(counted_memory(more, released_too)));
    must(right.close(patience));
    CHECK(work.wait().memory.has_bytes());
    CHECK(released_too == 1);
  }
#if !defined(VERBSPP_TEST_SANITIZED)  // LeakSanitizer would report the memory, which is lost
  SECTION("when the request is detached before") {
    must(receive().detach());
    lose();
  }
  SECTION("to a coroutine that is destroyed") {
    const auto awaiting = await_receive();
    lose();
  }
#endif
  SECTION("when the request is detached after") {
    auto work = receive();
    lose();
    must(std::move(work).detach());
  }
  SECTION("to a coroutine") {
    auto awaiting = await_receive();
    lose();
    left.poll();
    REQUIRE(awaiting.is_done());
    check_lost(awaiting.get());
  }
  left = channel();
  CHECK(released == 0);
}

TEST_CASE_METHOD(receiving_channel,
                 "a blocking call reports that the device did not destroy the queue pair") {
  const stuck_device stuck;
  const error failed = failure_of(left.receive({.elements = bytes.scatter()}, short_limit));
  CHECK(failed == error_kind::driver);
  CHECK(failed.native_errno() == EIO);
}

}  // namespace verbspp::test
