// SPDX-License-Identifier: Apache-2.0

// Compiles all public headers together, except those that need Asio, with strict warnings. alone.py
// uses the same options to compile each header separately.

#include <verbspp/calls.hpp>
#include <verbspp/channel.hpp>
#include <verbspp/cm.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/fwd.hpp>
#include <verbspp/group.hpp>
#include <verbspp/ranks.hpp>
#include <verbspp/sender.hpp>
#include <verbspp/verbspp.hpp>

#include <tuple>

// This function uses a defaulted constructor of a template, because g++ warns about such a
// constructor only where it is used.
[[nodiscard]] verbspp::pending<verbspp::message> empty_request();
verbspp::pending<verbspp::message> empty_request() { return {}; }

// A program should pay for exchanges only if it uses them, so the headers must not instantiate any.
// If they did, these specializations would come too late, and this file would not compile.
template <>
class verbspp::exchange_session<std::tuple<>, verbspp::detail::channel_in_place>;
template <>
class verbspp::meeting_session<std::tuple<>, verbspp::detail::channel_in_place>;
