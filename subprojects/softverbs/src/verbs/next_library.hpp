// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

/// The definition of `name` that the program would have used without this
/// library; null if there is none.
void* next_symbol(const char* name) noexcept;

/// The same, typed as the function that hides it. Looking a symbol up takes the
/// loader's lock, and none of these calls is on a data path, so nothing is cached.
template <typename Function>
Function* next(Function*, const char* name) noexcept {
  return reinterpret_cast<Function*>(next_symbol(name));
}

}  // namespace softverbs

/// Calls libibverbs' own definition of the entry point `name`.
#define SOFTVERBS_NEXT(name) (::softverbs::next(&name, #name))
