// SPDX-License-Identifier: Apache-2.0
// The functions of softverbs.h for faults, and those that run the device in single steps.
#include "faults/faults.hpp"

#include "machine/machine.hpp"
#include "verbs/export.hpp"
#include <softverbs/softverbs.h>

#include <mutex>

using namespace softverbs;

// softverbs_inject and softverbs_reset_faults first apply the faults listed in the environment
// variable SOFTVERBS_FAULTS, unless that was already done or libsoftverbs-faults does it.

SOFTVERBS_EXPORT int softverbs_inject(const char* text) {
  faults::read_environment();
  return faults::inject(text, "the argument of softverbs_inject", "no fault was set");
}

SOFTVERBS_EXPORT void softverbs_reset_faults(void) {
  faults::read_environment();
  faults::reset();
}

SOFTVERBS_EXPORT unsigned long long softverbs_faults_struck(void) { return faults::struck(); }

SOFTVERBS_EXPORT unsigned long long softverbs_fault_struck(const char* text) {
  return faults::struck(text);
}

SOFTVERBS_EXPORT void softverbs_hold(unsigned long long seed) {
  faults::keep_to_engine();
  softverbs::engine& engine = machine::current().engine;
  const std::lock_guard held(engine.lock());
  engine.hold(seed);
}

SOFTVERBS_EXPORT int softverbs_step(void) {
  softverbs::engine& engine = machine::current().engine;
  const std::lock_guard held(engine.lock());
  return engine.step() ? 1 : 0;
}

SOFTVERBS_EXPORT void softverbs_go_on(void) {
  softverbs::engine& engine = machine::current().engine;
  const std::lock_guard held(engine.lock());
  engine.go_on();
  faults::pass_by_engine();
}
