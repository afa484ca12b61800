// SPDX-License-Identifier: Apache-2.0

// What clang-tidy, and the compilers of sanitized builds, read the headers through.

#include <verbspp/channel.hpp>
#include <verbspp/cm.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/group.hpp>
#include <verbspp/ranks.hpp>
#include <verbspp/verbspp.hpp>
