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

/// `T`, spelled such that it depends on template arguments. If the members of a class template
/// return such types, their bodies are compiled where they are used instead of wherever the header
/// is included. Each `result` that is not instantiated saves about 5 ms.
template <class T, auto... On>
using dependent = typename dependent_type<T, On...>::type;
/// As above, for template arguments that are types.
template <class T, class... On>
using dependent_on = typename dependent_on_type<T, On...>::type;

}  // namespace verbspp::detail
