// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace verbspp::detail {

template <class T, auto...>
struct dependent_type {
  using type = T;
};
template <class T, class...>
struct dependent_on_type {
  using type = T;
};

/// The type `T`, written so that it depends on template arguments. A function with such a return
/// type instantiates `T` only if the program uses the function, not whenever the header is
/// compiled. Each `result` that is not instantiated saves about 5 ms of compile time.
template <class T, auto... On>
using dependent = typename dependent_type<T, On...>::type;
/// Like `dependent`, but for template arguments that are types instead of values.
template <class T, class... On>
using dependent_on = typename dependent_on_type<T, On...>::type;

}  // namespace verbspp::detail
