// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>

#include <utility>

namespace verbspp::detail {

/// The base class of objects that are shared through `reference`. It holds the reference count.
///
/// The count is changed with compiler builtins instead of `std::atomic`, so that
/// <verbspp/verbspp.hpp> does not include <atomic>.
class counted {
 public:
  counted() noexcept = default;
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;

 protected:
  ~counted() = default;

 private:
  template <class Object>
  friend class reference;
  unsigned count_ = 1;
};

/// A counted reference to a shared object, such as the parent of a verbs object.
///
/// Unlike a `std::shared_ptr`, it is created without exceptions and has the size of one pointer.
/// Thread rule: as for `std::shared_ptr`, different threads may use different references to the
/// same object.
template <class Object>
class reference {
 public:
  reference() noexcept = default;
  /// Adopts a reference that was counted already, such as the one with which a new object begins.
  explicit reference(Object* adopted) noexcept : object_(adopted) {}
  reference(const reference& other) noexcept : object_(other.object_) {
    if (object_ != nullptr) __atomic_fetch_add(&object_->count_, 1U, __ATOMIC_RELAXED);
  }
  reference(reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  reference& operator=(reference other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  /// Returns another reference to an object, or an empty reference if all references to the object
  /// have been released. The caller must ensure that the object's destructor has not ended.
  [[nodiscard]] static reference if_alive(Object* object) noexcept {
    unsigned count = __atomic_load_n(&object->count_, __ATOMIC_RELAXED);
    while (count != 0)
      if (__atomic_compare_exchange_n(&object->count_, &count, count + 1, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
        return reference(object);
    return {};
  }
  VERBSPP_DATA_PATH ~reference() {
    if (object_ != nullptr) drop();
  }

  /// True if no other reference shares the object.
  [[nodiscard]] bool is_only() const noexcept {
    return __atomic_load_n(&object_->count_, __ATOMIC_ACQUIRE) == 1;
  }
  [[nodiscard]] Object* get() const noexcept { return object_; }
  Object* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const reference&, const reference&) noexcept = default;

 private:
  void drop() noexcept {
    if (__atomic_fetch_sub(&object_->count_, 1U, __ATOMIC_ACQ_REL) == 1) delete object_;
  }

  Object* object_ = nullptr;
};

}  // namespace verbspp::detail
