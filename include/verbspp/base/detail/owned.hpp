// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <utility>

namespace verbspp::detail {

/// Owns an object that was created by `new`, or an array as `owned<Object[]>`. The library uses it
/// instead of `std::unique_ptr`, so that <verbspp/verbspp.hpp> does not include <memory>. That
/// header would make programs compile noticeably more slowly.
template <class Owned>
class owned {
 public:
  using object = std::remove_extent_t<Owned>;

  owned() noexcept = default;
  explicit owned(object* made) noexcept : object_(made) {}
  owned(const owned&) = delete;
  owned(owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  owned& operator=(const owned&) = delete;
  owned& operator=(owned&& other) noexcept {
    // The old object is destroyed last, because `other` may be a part of it.
    const owned old(std::exchange(object_, std::exchange(other.object_, nullptr)));
    return *this;
  }
  ~owned() {
    if constexpr (std::is_array_v<Owned>)
      delete[] object_;
    else
      delete object_;
  }

  [[nodiscard]] object* get() const noexcept { return object_; }
  object* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  object* object_ = nullptr;
};

}  // namespace verbspp::detail
