// SPDX-License-Identifier: Apache-2.0

// The library, parsed once for the checks that compile many small files.

#include <verbspp/verbspp.hpp>
