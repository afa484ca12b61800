// SPDX-License-Identifier: Apache-2.0

// The language version that users of the library get without requesting it.

#include <verbspp/base/config.hpp>

#include <version>

static_assert(__cpp_concepts >= 201907L, "the library's constraints are concepts");
