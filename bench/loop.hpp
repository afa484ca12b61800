// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

/// A measured loop, which main.cpp runs.
struct loop {
  std::string name;  ///< the name of its function without "loop_", such as "raw_write"
  std::function<bool(std::uint64_t)> run;
};
