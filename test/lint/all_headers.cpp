// SPDX-License-Identifier: Apache-2.0

// This file includes all public headers, except those that need Asio, so that clang-tidy checks
// them.

#include <verbspp/calls.hpp>
#include <verbspp/channel.hpp>
#include <verbspp/cm.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/fwd.hpp>
#include <verbspp/group.hpp>
#include <verbspp/ranks.hpp>
#include <verbspp/sender.hpp>
#include <verbspp/verbspp.hpp>
