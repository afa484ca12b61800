// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

namespace verbspp {

class continuation;

namespace detail {

class hub_state;

/// A counted reference to a `hub_state`, a class that is defined only in the library's sources.
class hub_reference {
 public:
  hub_reference() noexcept = default;
  /// Adopts the reference that a new hub already counts when it is created.
  explicit hub_reference(hub_state* adopted) noexcept : state_(adopted) {}
  hub_reference(const hub_reference& other) noexcept;
  hub_reference(hub_reference&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  hub_reference& operator=(hub_reference other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~hub_reference();

  [[nodiscard]] hub_state* get() const noexcept { return state_; }
  hub_state* operator->() const noexcept { return state_; }
  explicit operator bool() const noexcept { return state_ != nullptr; }
  /// Passes this call to a thread that polls the hub. That thread then makes the call. Any thread
  /// may call this. \pre not empty
  void hand_over(continuation& call) const noexcept;
  friend bool operator==(const hub_reference& one, const hub_reference& other) noexcept {
    return one.state_ == other.state_;
  }

 private:
  hub_state* state_ = nullptr;
};

}  // namespace detail

}  // namespace verbspp
