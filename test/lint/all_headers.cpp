// SPDX-License-Identifier: Apache-2.0

// All headers, for clang-tidy.

#include <verbspp/channel.hpp>
#include <verbspp/cm.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/group.hpp>
#include <verbspp/ranks.hpp>
#include <verbspp/verbspp.hpp>
