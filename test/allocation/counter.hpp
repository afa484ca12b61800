// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::test {

/// Returns the number of heap allocations that this thread has made so far, except those that the
/// device made.
[[nodiscard]] int allocations() noexcept;

/// Calls the function, and returns by how much `allocations()` has grown.
template <class Call>
[[nodiscard]] int allocations_in(Call call) {
  const int before = allocations();
  call();
  return allocations() - before;
}

/// While an object of this class exists, allocations by this thread count as allocations by the
/// device, which are permitted.
class within_device {
 public:
  within_device() noexcept;
  ~within_device();
  within_device(const within_device&) = delete;
  within_device& operator=(const within_device&) = delete;
};

/// Permanently replaces a function pointer with a function that calls the original one and treats
/// its allocations as the device's. Use a different `Tag` for each pointer.
template <int Tag, class Returned, class... Arguments>
void mark_as_device(Returned (*&pointer)(Arguments...)) {
  static Returned (*original)(Arguments...) = nullptr;
  original = pointer;
  pointer = [](Arguments... arguments) {
    const within_device device;
    return original(arguments...);
  };
}

}  // namespace verbspp::test
