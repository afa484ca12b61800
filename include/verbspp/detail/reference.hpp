// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <utility>

namespace verbspp::detail {

/// The count of an object that is shared through `reference`.
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
  std::atomic<unsigned> count_{1};
};

/// A counted reference: what keeps the parents of a verbs object alive.
///
/// Unlike `std::shared_ptr` it can be made without exceptions and is one pointer wide. Thread rule:
/// as `std::shared_ptr`: distinct references may be used by distinct threads.
template <class Object>
class reference {
 public:
  reference() noexcept = default;
  /// Takes over the count of one that a new object starts with.
  explicit reference(Object* adopted) noexcept : object_(adopted) {}
  reference(const reference& other) noexcept : object_(other.object_) {
    if (object_ != nullptr) object_->count_.fetch_add(1, std::memory_order_relaxed);
  }
  reference(reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  reference& operator=(reference other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  /// A further reference to an object, or none if the last one of the others is gone already. The
  /// caller knows that the object's destructor has not ended.
  [[nodiscard]] static reference if_alive(Object* object) noexcept {
    unsigned count = object->count_.load(std::memory_order_relaxed);
    while (count != 0)
      if (object->count_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed))
        return reference(object);
    return {};
  }
  ~reference() {
    if (object_ != nullptr && object_->count_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete object_;
  }

  [[nodiscard]] Object* get() const noexcept { return object_; }
  Object* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  friend bool operator==(const reference&, const reference&) noexcept = default;

 private:
  Object* object_ = nullptr;
};

}  // namespace verbspp::detail
