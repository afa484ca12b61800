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

/// `T`, spelled such that it depends on template arguments. A class template whose members have
/// such types, and return them, has the bodies compiled when they are used, not wherever the header
/// is included: each `result` that is not instantiated there spares some 5 ms.
template <class T, auto... On>
using dependent = typename dependent_type<T, On...>::type;
/// The same where the template arguments are types.
template <class T, class... On>
using dependent_on = typename dependent_on_type<T, On...>::type;

}  // namespace verbspp::detail
