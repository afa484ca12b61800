// SPDX-License-Identifier: Apache-2.0
#include "../catch.hpp"
#include <verbspp/core/detail/open_scopes.hpp>

#include <cstdint>

using namespace verbspp::detail;

namespace {

request posted_in(const scope_state& scope) {
  request one;
  one.scope = scope.serial % scope_serials;
  return one;
}

}  // namespace

TEST_CASE("a request finds its scope among the open scopes") {
  open_scopes scopes;
  scope_state outer;
  scope_state inner;
  CHECK(scopes.of(request()) == nullptr);
  scopes.open(outer, 5);
  scopes.open(inner, 7);
  CHECK(scopes.innermost() == &inner);
  CHECK(outer.run_first == 5);
  CHECK_FALSE(inner.has_sends());
  CHECK(scopes.of(posted_in(outer)) == &outer);
  CHECK(scopes.of(posted_in(inner)) == &inner);
  CHECK(scopes.of(request()) == nullptr);
  const request late = posted_in(inner);
  scopes.close(inner);
  CHECK(scopes.innermost() == &outer);
  CHECK(scopes.of(late) == nullptr);
  // A scope that is opened again counts as a different scope.
  scopes.open(inner, 7);
  CHECK(scopes.of(late) == nullptr);
}

TEST_CASE("a scope counts the handles whose results have not been taken") {
  scope_state scope;
  scope.posted = 3;
  CHECK(scope.left() == 3);
  scope.taken = 2;
  CHECK(scope.left() == 1);
  // Serial numbers repeat, so results of an earlier scope with the same serial number may be
  // counted as well.
  scope.taken = 5;
  CHECK(scope.left() == 0);
}

TEST_CASE("scopes can be closed in any order") {
  open_scopes scopes;
  scope_state all[3];
  for (scope_state& each : all) scopes.open(each, 1);
  CHECK(scopes.count() == 3);
  scopes.close(all[1]);
  CHECK(scopes.count() == 2);
  CHECK(scopes.of(posted_in(all[0])) == &all[0]);
  CHECK(scopes.of(posted_in(all[1])) == nullptr);
  scopes.close(all[0]);
  CHECK(scopes.innermost() == &all[2]);
  scopes.close(all[2]);
  CHECK(scopes.innermost() == nullptr);
}

TEST_CASE("the serial numbers of scopes wrap around to one, because zero means no scope") {
  open_scopes scopes;
  scope_state one;
  for (std::uint32_t count = 1; count < scope_serials; ++count) {
    scopes.open(one, 1);
    scopes.close(one);
  }
  CHECK(one.serial == scope_serials - 1);
  scopes.open(one, 1);
  CHECK(one.serial == 1);
}
