// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace softverbs {

/// Returns the definition of `name` that the program would use without this library, or null if
/// there is none.
void* next_symbol(const char* name) noexcept;

/// Returns the result of `next_symbol(name)`, converted to the type of this library's function of
/// that name. Each call looks the name up under the loader's lock, which is acceptable because
/// posts and polls don't do this.
template <typename Function>
Function* next(Function*, const char* name) noexcept {
  return reinterpret_cast<Function*>(next_symbol(name));
}

}  // namespace softverbs

/// The next library's definition of the entry point `name`, usually that of libibverbs, or null if
/// there is none.
#define SOFTVERBS_NEXT(name) (::softverbs::next(&name, #name))
