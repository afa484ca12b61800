// SPDX-License-Identifier: Apache-2.0

// These headers are precompiled once for all tests of a program. Each test also includes the
// headers that it needs, so that it compiles without a precompiled header.

#include "../catch.hpp"
#include <verbspp/verbspp.hpp>
