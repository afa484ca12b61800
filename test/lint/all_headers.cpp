// SPDX-License-Identifier: Apache-2.0

// This file includes most of the headers so that clang-tidy checks them.

#include <verbspp/channel.hpp>
#include <verbspp/cm.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/group.hpp>
#include <verbspp/ranks.hpp>
#include <verbspp/verbspp.hpp>
