// SPDX-License-Identifier: Apache-2.0

// What a user of the library gets without asking for it.

#include <verbspp/base/config.hpp>

#include <version>

static_assert(__cpp_concepts >= 201907L, "the library's constraints are concepts");
