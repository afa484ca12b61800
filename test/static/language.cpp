// SPDX-License-Identifier: Apache-2.0

// Checks the language version that programs get from the library's build files without requesting
// it.

#include <verbspp/base/config.hpp>

#include <version>

static_assert(__cpp_concepts >= 201907L, "the library's constraints are concepts");
