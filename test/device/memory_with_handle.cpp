// SPDX-License-Identifier: Apache-2.0
/// \file
/// Memory of the program whose destructor uses its channel. The library runs that destructor when
/// the device has released the memory of a detached request.

#include "channels.hpp"

#include <utility>

namespace verbspp::test {

namespace {

/// Memory that a request can own, and that has a handle to another request.
class memory_with_handle {
 public:
  memory_with_handle(buffer<>& bytes, pending<>&& other)
      : bytes_(&bytes), other_(std::move(other)) {}

  [[nodiscard]] result<gather_element> gather() const { return bytes_->gather(); }
  [[nodiscard]] result<scatter_element> scatter() { return bytes_->scatter(); }

 private:
  buffer<>* bytes_;
  pending<> other_;
};

}  // namespace

}  // namespace verbspp::test

template <>
inline constexpr bool verbspp::enable_work_memory<verbspp::test::memory_with_handle> = true;

namespace verbspp::test {

TEST_CASE_METHOD(two_channels,
                 "a failure stays known while memory that is released drops other handles") {
  buffer<> mine(bed.domain, pattern(64, 8));
  buffer<> theirs(bed.domain, 64);
  auto first = must(left.post_receive({.elements = mine.scatter()}));
  auto second = must(left.post_receive({.elements = mine.scatter()}));
  const endpoint left_end = must(left.renew());
  const endpoint right_end = must(right.renew());
  auto received = must(right.post_receive({.elements = theirs.scatter()}));
  must(left.handshake(right_end));
  must(right.handshake(left_end));

  must(must(left.post_send(memory_with_handle(mine, std::move(second)))).detach());
  must(received.wait(patience));
  // After an answer, the device of `left` has completed the send.
  must(right.write({.elements = theirs.gather(), .remote = mine.remote()}));
  // This wait is the first to see that, so it releases the memory, which drops `second`.
  CHECK(failure_of(first.wait(patience)).work()->status() == work_status::flushed);
}

}  // namespace verbspp::test
