// SPDX-License-Identifier: Apache-2.0

// Parsed once for the checks that compile many small files.

#include <verbspp/verbspp.hpp>
