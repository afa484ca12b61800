// SPDX-License-Identifier: Apache-2.0

// The library's headers, precompiled once for the checks that compile many small files.

#include <verbspp/verbspp.hpp>
