// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/base/detail/reference.hpp>

#include <utility>

namespace {

struct tracked : verbspp::detail::counted {
  explicit tracked(int& alive) : alive_(alive) { ++alive_; }
  tracked(const tracked&) = delete;
  tracked& operator=(const tracked&) = delete;
  ~tracked() { --alive_; }
  int& alive_;
};
using reference = verbspp::detail::reference<tracked>;

}  // namespace

TEST_CASE("an object exists as long as any reference to it") {
  int alive = 0;
  {
    reference last;
    {
      const reference first(new tracked(alive));
      last = first;
      CHECK(last == first);
      CHECK(alive == 1);
    }
    CHECK(alive == 1);
    CHECK(last.get() != nullptr);
  }
  CHECK(alive == 0);
}

TEST_CASE("a moved-from reference is empty") {
  int alive = 0;
  reference first(new tracked(alive));
  reference second(std::move(first));
  CHECK(second);
  CHECK_FALSE(first);  // NOLINT(bugprone-use-after-move): intended
  first = std::move(second);
  CHECK(first);
  CHECK_FALSE(second);  // NOLINT(bugprone-use-after-move)
  CHECK(alive == 1);
  first = reference();
  CHECK(alive == 0);
}

TEST_CASE("assigning a reference releases the previous object") {
  int one = 0;
  int other = 0;
  reference reference_(new tracked(one));
  reference_ = reference(new tracked(other));
  CHECK(one == 0);
  CHECK(other == 1);
  const reference& same = reference_;
  reference_ = same;
  CHECK(other == 1);
}
