// SPDX-License-Identifier: Apache-2.0

// The headers of the verbs layer, precompiled once for the checks that compile many small files.
// Checks of other layers compile the headers of those layers themselves.

#include <verbspp/verbspp.hpp>
