// SPDX-License-Identifier: Apache-2.0

// All headers at once, with strict warnings; alone.py compiles each of them with the same options.

#include <verbspp/channel.hpp>
#include <verbspp/cm.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/group.hpp>
#include <verbspp/ranks.hpp>
#include <verbspp/verbspp.hpp>

#include <tuple>

// g++ warns about a defaulted constructor of a template where it is used.
[[nodiscard]] verbspp::pending<verbspp::message> empty_request();
verbspp::pending<verbspp::message> empty_request() { return {}; }

// A program pays for an exchange only if it uses one: the headers must not instantiate one, or
// these specializations would come too late.
template <>
class verbspp::exchange_session<std::tuple<>, verbspp::detail::channel_in_place>;
template <>
class verbspp::meeting_session<std::tuple<>, verbspp::detail::channel_in_place>;
