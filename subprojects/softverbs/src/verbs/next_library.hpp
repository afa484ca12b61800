// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

/// Returns the definition of `name` that the program would use without this library, or null if
/// there is none.
void* next_symbol(const char* name) noexcept;

/// As above, with the type of the function that hides it. The lookup takes the loader's lock, but
/// nothing is cached, because none of these calls is on a data path.
template <typename Function>
Function* next(Function*, const char* name) noexcept {
  return reinterpret_cast<Function*>(next_symbol(name));
}

}  // namespace softverbs

/// Calls the definition of the entry point `name` in libibverbs.
#define SOFTVERBS_NEXT(name) (::softverbs::next(&name, #name))
