// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "verbs/export.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

namespace softverbs {

/// A libc function, as the program would call it without this library. All such functions are
/// looked up when this library is loaded, because a signal handler may open files, and must not
/// look up names. A function that the constructor of another library calls earlier is looked up
/// during that call.
template <typename Function>
class libc_function {
 public:
  explicit constexpr libc_function(const char* name) noexcept : name_(name) {}

  /// Returns the function, or null if libc has none of this name.
  Function* get() noexcept {
    auto* found = found_.load(std::memory_order_acquire);
    return found != nullptr ? found : find();
  }
  Function* find() noexcept {
    auto* found = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_));
    found_.store(found, std::memory_order_release);
    return found;
  }

 private:
  const char* name_;
  std::atomic<Function*> found_{nullptr};
};

template <typename Function, typename... Arguments>
auto call(libc_function<Function>& function, Arguments... arguments)
    -> decltype(function.get()(arguments...)) {
  auto* next = function.get();
  if (next != nullptr) return next(arguments...);
  errno = ENOSYS;
  return decltype(next(arguments...))(-1);
}

}  // namespace softverbs

/// Begins the definition of a function that replaces a libc function. The linker knows the function
/// by the name `libc_name`.
#define SOFTVERBS_INTERPOSED(type, own, libc_name, parameters)              \
  SOFTVERBS_EXPORT type softverbs_libc_##own parameters __asm__(libc_name); \
  type softverbs_libc_##own parameters
