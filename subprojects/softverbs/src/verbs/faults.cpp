// SPDX-License-Identifier: Apache-2.0
// The functions of softverbs.h that let things fail.
#include "faults/faults.hpp"

#include "verbs/export.hpp"
#include <softverbs/softverbs.h>

using namespace softverbs;

// Those of the environment were there before.

SOFTVERBS_EXPORT int softverbs_inject(const char* text) {
  faults::read_environment();
  return faults::inject(text, "softverbs_inject", "no fault was set");
}

SOFTVERBS_EXPORT void softverbs_reset_faults(void) {
  faults::read_environment();
  faults::reset();
}

SOFTVERBS_EXPORT unsigned long long softverbs_faults_struck(void) { return faults::struck(); }
