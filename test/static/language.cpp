// SPDX-License-Identifier: Apache-2.0

// The compiler supports concepts, which the library uses for its constraints.

#include <verbspp/base/config.hpp>

#include <version>

static_assert(__cpp_concepts >= 201907L, "the library's constraints are concepts");
