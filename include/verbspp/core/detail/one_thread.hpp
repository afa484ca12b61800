// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

#include <cassert>

namespace verbspp::detail {

/// A guard that functions of a channel create as a local variable. In debug builds, it asserts that
/// only one thread at a time is in these functions.
class one_thread {
 public:
  VERBSPP_DATA_PATH explicit one_thread([[maybe_unused]] unsigned& users) noexcept
#ifndef NDEBUG
      : users_(users) {
    [[maybe_unused]] const unsigned others = __atomic_fetch_add(&users_, 1U, __ATOMIC_ACQUIRE);
    assert(others == 0 && "two threads use a channel, or its handles, at the same time");
  }
#else
  {
  }
#endif
  one_thread(const one_thread&) = delete;
  one_thread& operator=(const one_thread&) = delete;
#ifndef NDEBUG
  ~one_thread() { __atomic_fetch_sub(&users_, 1U, __ATOMIC_RELEASE); }

 private:
  unsigned& users_;
#endif
};

}  // namespace verbspp::detail
