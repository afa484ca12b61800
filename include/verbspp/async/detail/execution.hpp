// SPDX-License-Identifier: Apache-2.0
/// \file
/// The names that a sender and a receiver use for each other's types and functions.
#pragma once

#include <verbspp/base/detail/stop_callback.hpp>

#include <utility>

#ifdef VERBSPP_STDEXEC
#include <stdexec/execution.hpp>
#endif

namespace verbspp {

#ifdef VERBSPP_STDEXEC
namespace execution = ::stdexec;
#else
/// Stand-ins for the types of `std::execution` that describe senders. With `VERBSPP_STDEXEC`, the
/// types of stdexec are used instead. The only one that a program's receiver may need is
/// `get_stop_token_t`, the query that its environment answers with a stop token.
namespace execution {
struct sender_tag {};
struct operation_state_tag {};
struct scheduler_tag {};
struct set_value_t {};
struct set_error_t {};
struct set_stopped_t {};
/// Lists the functions of a receiver, such as `set_value_t(int)`. A sender calls one of them.
template <class... Functions>
struct completion_signatures {};
struct get_stop_token_t {};
template <class Function>
struct get_completion_scheduler_t {};
}  // namespace execution
#endif

namespace detail {

/// The token that is used for a receiver without a stop token.
struct no_stop_token {
  [[nodiscard]] static constexpr bool stop_requested() noexcept { return false; }
};

/// Returns the stop token that the receiver's environment provides.
template <class Receiver>
[[nodiscard]] auto stop_token_of(const Receiver& receiver) noexcept {
  if constexpr (requires { receiver.get_env().query(execution::get_stop_token_t()); })
    return receiver.get_env().query(execution::get_stop_token_t());
  else
    return no_stop_token();
}
template <class Receiver>
using stop_token_of_t = decltype(stop_token_of(std::declval<const Receiver&>()));

}  // namespace detail

}  // namespace verbspp
