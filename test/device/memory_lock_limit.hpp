// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace verbspp::test {

/// Changes the limit on locked memory until this object is destroyed. `changed` is true if the
/// process was permitted to change the limit.
class memory_lock_limit {
 public:
  explicit memory_lock_limit(rlim_t soft) {
    REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before_) == 0);
    const rlimit wanted{soft, std::max(soft, before_.rlim_max)};
    changed = ::setrlimit(RLIMIT_MEMLOCK, &wanted) == 0;
  }
  ~memory_lock_limit() { ::setrlimit(RLIMIT_MEMLOCK, &before_); }
  memory_lock_limit(const memory_lock_limit&) = delete;
  memory_lock_limit& operator=(const memory_lock_limit&) = delete;

  bool changed = false;

 private:
  rlimit before_{};
};

}  // namespace verbspp::test
