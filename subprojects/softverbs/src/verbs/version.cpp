// SPDX-License-Identifier: Apache-2.0
#include "verbs/export.hpp"
#include <softverbs/softverbs.h>

SOFTVERBS_EXPORT const char* softverbs_version(void) { return SOFTVERBS_VERSION; }
