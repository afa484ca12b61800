// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/channel/continuation.hpp>
#include <verbspp/channel/detail/continuations.hpp>

#include <coroutine>

namespace verbspp::detail {

/// The wait of a coroutine for a request, or for a condition on a channel. This is the base class
/// of most awaitables.
class awaited : public condition {
 protected:
  /// \param about see `condition`
  VERBSPP_DATA_PATH awaited(function called, test is_met, const wait_limit& limit,
                            void* about = nullptr) noexcept
      : condition(called, is_met, about) {
    if (const wait_limit* const own = given(limit)) [[unlikely]]
      set_limit(*own);
  }
  /// For a wait without a condition. The limit is set separately.
  VERBSPP_DATA_PATH explicit awaited(function called) noexcept : condition(called) {}
  ~awaited() = default;

  /// The function for awaitables that have to do nothing but resume the coroutine.
  static void resume(continuation& self) noexcept { static_cast<awaited&>(self).waiting_.resume(); }

  std::coroutine_handle<> waiting_{};
};

}  // namespace verbspp::detail
