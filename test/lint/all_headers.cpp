// SPDX-License-Identifier: Apache-2.0

// Never built: clang-tidy reads the headers through it.

#include <verbspp/cm.hpp>
#include <verbspp/verbspp.hpp>
