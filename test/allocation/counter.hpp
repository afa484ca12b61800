// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::test {

/// How often this thread has asked for memory of the heap, but for what the device did meanwhile.
[[nodiscard]] int allocations() noexcept;

/// How often it does so in a call.
template <class Call>
[[nodiscard]] int allocations_in(Call call) {
  const int before = allocations();
  call();
  return allocations() - before;
}

/// While it lives, this thread works for the device, which may allocate.
class within_device {
 public:
  within_device() noexcept;
  ~within_device();
  within_device(const within_device&) = delete;
  within_device& operator=(const within_device&) = delete;
};

/// Marks what goes through a pointer as the device's work, for good. One `Tag` for each pointer.
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
