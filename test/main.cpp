// SPDX-License-Identifier: Apache-2.0

// Catch2's own main returns the number of failures, or 0 where no test ran. Here 77, which
// Meson takes for a skip, means that and nothing else, and running nothing is a failure.

#define CATCH_CONFIG_RUNNER
#include "catch.hpp"

namespace {

constexpr int exit_skipped = 77;
int ended_cases = 0;
int skipped = 0;

#if __has_include(<catch2/catch_all.hpp>)
using listener_base = Catch::EventListenerBase;
#else
using listener_base = Catch::TestEventListenerBase;
#endif

class counter : public listener_base {
 public:
  using listener_base::listener_base;

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ++ended_cases;
#if __has_include(<catch2/catch_all.hpp>)
    skipped += static_cast<int>(stats.totals.testCases.skipped);
#else
    static_cast<void>(stats);
    skipped = verbspp::test::skipped_cases;
#endif
  }
};

CATCH_REGISTER_LISTENER(counter)

}  // namespace

int main(int argc, char* argv[]) {
  Catch::Session session;
  const int wrong_options = session.applyCommandLine(argc, argv);
  if (wrong_options != 0) {
    return EXIT_FAILURE;
  }
  const int failed = session.run();
  const auto& config = session.configData();
  if (config.showHelp || config.listTests || config.listTags || config.listReporters) {
    return EXIT_SUCCESS;
  }
  if (ended_cases != 0 && skipped == ended_cases) {
    return exit_skipped;
  }
  return failed == 0 && ended_cases != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
