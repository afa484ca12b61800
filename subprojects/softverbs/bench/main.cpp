// SPDX-License-Identifier: Apache-2.0
// Measures the software device, and the host without it.
//
//     softverbs-bench [--seconds TIME] MEASUREMENT
//
// prints a line for each result, with its name and its figures: seconds, bytes, a number per
// second, or a ratio. table.py runs this program.
#include "measurement.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

int main(int count, char** arguments) {
  int at = 1;
  if (count > 3 && std::string_view(arguments[at]) == "--seconds") {
    bench::duration = bench::seconds(std::atof(arguments[at + 1]));
    at += 2;
  }
  const std::string_view wanted = at < count ? arguments[at] : "";
  errno = 0;
  for (const auto* group :
       {&bench::yardsticks, &bench::of_two_processes, &bench::of_one_process, &bench::of_upkeep})
    for (const bench::measurement& each : *group)
      if (wanted == each.name) {
        each.run();
        return 0;
      }
  std::fprintf(stderr, "usage: %s [--seconds TIME] MEASUREMENT, which is one of\n", arguments[0]);
  for (const auto* group :
       {&bench::yardsticks, &bench::of_two_processes, &bench::of_one_process, &bench::of_upkeep})
    for (const bench::measurement& each : *group) std::fprintf(stderr, "  %s\n", each.name);
  return 2;
}
