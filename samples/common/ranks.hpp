// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/ranks.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

/// If this process was started as one of several ranks, calls the function with its bootstrap. If
/// it was started alone, runs four threads as ranks, and calls the function in each of them. Prints
/// the failures.
///
/// \returns the exit status of the process
template <class Function>
int run_as_ranks(std::chrono::seconds patience, Function function) {
  std::vector<verbspp::any_bootstrap> ranks;
  auto found = verbspp::find_bootstrap(patience);
  if (found.has_value()) {
    ranks.push_back(std::move(found).value());
  } else if (found.error() == verbspp::error_kind::not_found) {
    std::cout << "not started as one of several processes: running four threads as ranks\n";
    for (verbspp::local_bootstrap& each : verbspp::local_bootstrap::create(4))
      ranks.emplace_back(std::move(each));
  } else {
    std::cerr << found.error() << '\n';
    return 1;
  }
  std::vector<int> failed(ranks.size());
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      const auto outcome = function(std::move(ranks[i]));
      if (outcome.has_value()) return;
      std::cerr << outcome.error() << '\n';
      failed[i] = 1;
    });
  for (std::thread& each : threads) each.join();
  return std::ranges::find(failed, 1) == failed.end() ? 0 : 1;
}
