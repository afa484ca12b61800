// SPDX-License-Identifier: Apache-2.0

// Includes all headers at once, with strict warnings. alone.py compiles each header separately,
// with the same options.

#include <verbspp/channel.hpp>
#include <verbspp/cm.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/group.hpp>
#include <verbspp/ranks.hpp>
#include <verbspp/verbspp.hpp>

#include <tuple>

// Uses a defaulted constructor of a template, because g++ warns about it only where it is used.
[[nodiscard]] verbspp::pending<verbspp::message> empty_request();
verbspp::pending<verbspp::message> empty_request() { return {}; }

// A program should pay for exchanges only if it uses them, so the headers must not instantiate an
// exchange. If they did, these specializations would come too late to compile.
template <>
class verbspp::exchange_session<std::tuple<>, verbspp::detail::channel_in_place>;
template <>
class verbspp::meeting_session<std::tuple<>, verbspp::detail::channel_in_place>;
