// SPDX-License-Identifier: Apache-2.0
/// \file
/// Helps to test assertions, which report misuse for which no error exists.
#pragma once

#include "catch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <string>

namespace verbspp::test {

/// Calls `act` in a separate process, and returns the message of the assertion that fails there.
/// Skips the test if assertions are disabled.
template <class Act>
[[nodiscard]] std::string assertion_in(Act act) {
#ifdef NDEBUG
  static_cast<void>(act);
  SKIP("assertions are disabled in this build");
  return {};
#else
  std::array<int, 2> text{};
  REQUIRE(::pipe(text.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Catch has installed its own handler for this signal in the test program. Restore the default.
    std::signal(SIGABRT, SIG_DFL);
    ::dup2(text[1], STDERR_FILENO);
    act();
    ::_exit(0);
  }
  ::close(text[1]);
  std::string told;
  std::array<char, 256> part{};
  for (ssize_t got = 0; (got = ::read(text[0], part.data(), part.size())) > 0;)
    told.append(part.data(), static_cast<std::size_t>(got));
  ::close(text[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  INFO(told);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  return told;
#endif
}

}  // namespace verbspp::test
