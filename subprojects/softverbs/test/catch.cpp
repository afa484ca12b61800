// SPDX-License-Identifier: Apache-2.0

// Runs the test cases. If Catch2 is a single header, Catch2 itself is compiled here, once for all
// test programs.

#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include "catch.hpp"

#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int exit_skipped = 77;

#if __has_include(<catch2/catch_all.hpp>)
using listener_base = Catch::EventListenerBase;
/// Returns true if standard output is a report that additional lines would corrupt.
bool prints_a_document(const Catch::ConfigData& config) {
  if (!config.defaultOutputFilename.empty()) return false;
  for (const Catch::ReporterSpec& each : config.reporterSpecifications)
    if (!each.outputFile() && each.name() != "console" && each.name() != "compact") return true;
  return false;
}
const std::string& name_of(const Catch::TestCaseStats& stats) { return stats.testInfo->name; }
bool lists(const Catch::ConfigData& config) {
  return config.showHelp || config.listTests || config.listTags || config.listReporters ||
         config.listListeners;
}
#else
using listener_base = Catch::TestEventListenerBase;
bool prints_a_document(const Catch::ConfigData& config) {
  return config.outputFilename.empty() && config.reporterName != "console" &&
         config.reporterName != "compact";
}
const std::string& name_of(const Catch::TestCaseStats& stats) { return stats.testInfo.name; }
bool lists(const Catch::ConfigData& config) {
  return config.showHelp || config.listTests || config.listTestNamesOnly || config.listTags ||
         config.listReporters;
}
#endif

struct {
  unsigned passed = 0;
  unsigned failed = 0;
  unsigned skipped = 0;
  /// One line for each skipped test case, with its name and the reason.
  std::vector<std::string> reasons;
} counts;

/// Counts test cases. A test case counts as skipped if any of its sections was skipped and none
/// failed.
class case_counter : public listener_base {
 public:
  using listener_base::listener_base;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    listener_base::testCaseStarting(info);
    reason_.clear();
  }
#if __has_include(<catch2/catch_all.hpp>)
  void assertionEnded(const Catch::AssertionStats& stats) override {
    if (stats.assertionResult.getResultType() == Catch::ResultWas::ExplicitSkip)
      reason_ = stats.assertionResult.getMessage();
  }
#else
  bool assertionEnded(const Catch::AssertionStats& stats) override {
    const std::string message = stats.assertionResult.getMessage();
    if (stats.assertionResult.getResultType() == Catch::ResultWas::Warning &&
        message.rfind(catch_skips, 0) == 0)
      reason_ = message.substr(std::string_view(catch_skips).size());
    return listener_base::assertionEnded(stats);
  }
#endif
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (stats.totals.testCases.failed > 0) {
      ++counts.failed;
    } else if (!reason_.empty()) {
      ++counts.skipped;
      counts.reasons.push_back("skipped: " + name_of(stats) + " (" + reason_ + ")");
    } else {
      ++counts.passed;
    }
    listener_base::testCaseEnded(stats);
  }

 private:
  std::string reason_;
};

CATCH_REGISTER_LISTENER(case_counter)

}  // namespace

int run_test_cases(int count, char** arguments) {
  Catch::Session session;
  if (session.applyCommandLine(count, arguments) != 0) return EXIT_FAILURE;
  const int failed = session.run();
  if (lists(session.configData())) return EXIT_SUCCESS;
  if (!prints_a_document(session.configData())) {
    for (const std::string& each : counts.reasons) std::cout << each << '\n';
    std::cout << counts.passed << " passed, " << counts.failed << " failed, " << counts.skipped
              << " skipped" << std::endl;
  }
  const unsigned ran = counts.passed + counts.failed + counts.skipped;
  if (counts.skipped != 0 && counts.skipped == ran) return exit_skipped;
  return failed == 0 && ran != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
