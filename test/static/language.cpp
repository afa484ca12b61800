// SPDX-License-Identifier: Apache-2.0

// The compiler supports the concepts that the library's constraints use.

#include <verbspp/base/config.hpp>

#include <version>

static_assert(__cpp_concepts >= 201907L, "the library's constraints are concepts");
