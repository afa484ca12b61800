// SPDX-License-Identifier: Apache-2.0

// Checks which language version a program gets from the library's build files if it does not
// request one.

#include <verbspp/base/config.hpp>

#include <version>

static_assert(__cpp_concepts >= 201907L, "the library's constraints are concepts");
