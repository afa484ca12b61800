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
/// of the objects to which `co_await` is applied.
class awaited : public condition {
 protected:
  /// \param about see `condition`
  VERBSPP_DATA_PATH awaited(function called, test is_met, const wait_limit& limit,
                            void* about = nullptr) noexcept
      : condition(called, is_met, about) {
    if (const wait_limit* const own = given(limit)) [[unlikely]]
      set_limit(*own);
  }
  /// For a request that is posted already. The limit is set separately.
  VERBSPP_DATA_PATH explicit awaited(function called) noexcept : condition(called) {}
  ~awaited() = default;

  /// The function for awaited objects that only have to resume the coroutine once the condition is
  /// met.
  static void resume(continuation& self) noexcept { static_cast<awaited&>(self).waiting_.resume(); }

  std::coroutine_handle<> waiting_{};
};

}  // namespace verbspp::detail
