// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::test {

/// The number of heap allocations by this thread, except allocations by the device.
[[nodiscard]] int allocations() noexcept;

/// The number of heap allocations during a call.
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

/// Replaces a function pointer permanently by a function that calls the original, whose allocations
/// count as allocations by the device. Use a different `Tag` for each pointer.
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
