// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"
#include "support/fabric.hpp"

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

/// Returns true if the given thread of this process is asleep in the kernel.
inline bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  // The state comes after the thread's name, which may itself contain parentheses and spaces.
  const auto name_end = line.rfind(") ");
  return name_end != std::string::npos && line.compare(name_end + 2, 1, "S") == 0;
}

/// Runs `call` on another thread, and calls `end` when that thread sleeps. Checks that `call` does
/// not return before that. Returns the result of `call`.
template <typename Call, typename End>
int returns_only_after(Call call, End end) {
  std::atomic<pid_t> thread{0};
  std::atomic<bool> returned{false};
  int result = 0;
  std::thread other([&] {
    thread = ::gettid();
    result = call();
    returned = true;
  });
  CHECK(eventually([&] { return returned || sleeps(thread); }));
  CHECK_FALSE(returned);
  end();
  other.join();
  return result;
}
