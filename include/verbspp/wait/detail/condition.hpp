// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/wait/continuation.hpp>

#include <cstdint>

namespace verbspp::detail {

/// A continuation that can also wait for something other than a request, such as a message of an
/// inbox.
class condition : public continuation {
 public:
  enum class state : std::uint8_t {
    met,
    unmet,         ///< may be met by a completion, or by another event that wakes the thread
    unmet_so_far,  ///< may be met by an event that wakes no thread: check again soon
  };
  using test = state (*)(condition& self) noexcept;

  /// \param about the object that `subject` returns, such as an inbox, the core of the channel or
  /// its polls; may be null
  condition(function called, test is_met, void* about = nullptr) noexcept
      : continuation(called), subject_(about), is_met_(is_met) {}
  /// Resumes a coroutine when the condition is met. `frame` is the address of its handle.
  condition(void* frame, test is_met, void* about) noexcept
      : continuation(frame), subject_(about), is_met_(is_met) {}
  /// Resumes a coroutine, and has no condition: `check` must not be called.
  VERBSPP_DATA_PATH condition(void* frame, void* about) noexcept
      : continuation(frame), subject_(about) {}
  condition(const condition&) = delete;
  condition& operator=(const condition&) = delete;
  ~condition() = default;

  [[nodiscard]] state check() noexcept { return is_met_(*this); }
  [[nodiscard]] void* subject() const noexcept { return subject_; }
  void forget_subject() noexcept { subject_ = nullptr; }

 private:
  void* subject_;
  union {
    test is_met_;  ///< not set without a condition
  };
};

}  // namespace verbspp::detail
