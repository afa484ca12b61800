// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/base/destroy_failure.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>

using verbspp::error;
using verbspp::set_destroy_failure_handler;
using verbspp::detail::report_release;

namespace {

std::optional<error> reported;
int reports = 0;

void keep(const error& failure) noexcept {
  reported = failure;
  ++reports;
}
void ignore(const error&) noexcept {}

/// Installs a handler that is called if an object could not be destroyed. Restores the previous
/// handler at the end of the test.
class handler_for_this_test {
 public:
  explicit handler_for_this_test(verbspp::destroy_failure_handler handler)
      : before_(set_destroy_failure_handler(handler)) {
    reported.reset();
    reports = 0;
  }
  ~handler_for_this_test() { set_destroy_failure_handler(before_); }
  handler_for_this_test(const handler_for_this_test&) = delete;
  handler_for_this_test& operator=(const handler_for_this_test&) = delete;

 private:
  verbspp::destroy_failure_handler before_;
};

/// Returns the text that the function writes to stderr.
template <class Function>
std::string captured_stderr(Function function) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  function();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  std::rewind(file);
  std::string text;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace

TEST_CASE("a release that fails is reported to the handler with errno, operation and hint") {
  const handler_for_this_test handler(&keep);
  report_release(EBUSY, "ibv_dealloc_pd", "something uses it");
  CHECK(reports == 1);
  REQUIRE(reported);
  CHECK(reported->message() ==
        "ibv_dealloc_pd: Device or resource busy (EBUSY); something uses it");
}

TEST_CASE("a release that succeeds is not reported") {
  const handler_for_this_test handler(&keep);
  report_release(0, "ibv_dealloc_pd");
  CHECK(reports == 0);
}

TEST_CASE("setting the handler returns the previous one") {
  const handler_for_this_test handler(&keep);
  CHECK(set_destroy_failure_handler(&ignore) == &keep);
  report_release(EBUSY, "ibv_dealloc_pd");
  CHECK(reports == 0);
  CHECK(set_destroy_failure_handler(&keep) == &ignore);
  report_release(EBUSY, "ibv_dealloc_pd");
  CHECK(reports == 1);
}

TEST_CASE("without a handler a failed release writes one line to stderr") {
  const handler_for_this_test handler(nullptr);
  const auto text = captured_stderr([] { report_release(EBUSY, "ibv_destroy_qp", "why"); });
  CHECK(text ==
        "verbspp: a resource could not be fully released: ibv_destroy_qp: Device or resource busy "
        "(EBUSY); why\n");
}

TEST_CASE("setting no handler restores the default one") {
  const handler_for_this_test handler(nullptr);
  const auto standard = set_destroy_failure_handler(&keep);
  CHECK(standard != nullptr);
  CHECK(set_destroy_failure_handler(nullptr) == &keep);
  CHECK(set_destroy_failure_handler(&keep) == standard);
}
