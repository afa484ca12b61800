// SPDX-License-Identifier: Apache-2.0
#include "soak.hpp"

#include "end.hpp"
#include "faults.hpp"
#include "processes.hpp"
#include "watcher.hpp"

#include <cstdio>
#include <memory>
#include <optional>
#include <ostream>
#include <sstream>
#include <thread>

namespace verbspp::soak {

namespace {

std::atomic<unsigned> release_failures{0};

void count_release_failure(const error& cause) noexcept {
  std::fprintf(stderr, "an object could not be released: %s\n", cause.message().c_str());
  ++release_failures;
}

/// Runs one end on this thread, and reports its failure, if any, to the board.
void run_end(end& own, board& shared, unsigned which, std::uint64_t first) {
  try {
    own.run(first);
  } catch (const stopped&) {
    // The other end has already reported the failure.
  } catch (const std::exception& caught) {
    shared.fail(std::string(which == 0 ? "left: " : "right: ") + caught.what());
  }
}

void append_counts(std::ostream& out, const char* whose,
                   const std::map<std::string, std::uint64_t>& counts) {
  for (const auto& [name, count] : counts) out << whose << name << ": " << count << '\n';
}

}  // namespace

summary run(const options& wanted) {
  summary found;
  const auto handler = set_destroy_failure_handler(count_release_failure);
  release_failures = 0;
  std::ostringstream text;
  std::uint64_t kills = 0;
  const mapped<board> memory(wanted.board);
  board& shared = memory.get();
  watcher looking(wanted, shared, [&] {
    return shared.ends[0].operations.load() + shared.ends[1].operations.load();
  });
  try {
    other_process peer;
    std::uint64_t started = 0;
    const auto start_peer = [&] {
      peer.start({"--peer=" + std::to_string(memory.descriptor()), "--device=" + wanted.device,
                  "--seed=" + std::to_string(mix(wanted.seed, ++started)),
                  "--operations=" + std::to_string(wanted.operations),
                  "--patience=" + std::to_string(wanted.patience.count()),
                  "--ack-timeout=" + std::to_string(wanted.ack_timeout)});
    };
    std::optional<fault_maker> faults;
    if (wanted.faults) faults.emplace(mix(wanted.seed, 99));
    std::unique_ptr<end> left;
    std::unique_ptr<end> right;
    const auto kill = [&] { ++kills, peer.kill(); };
    const auto revive = [&] {
      shared.ends[1].wants_to_stop = false;
      start_peer();
    };
    left = wanted.kills ? std::make_unique<end>(wanted, shared, 0U, kill, revive)
                        : std::make_unique<end>(wanted, shared, 0U, nullptr, nullptr);
    if (wanted.kills)
      start_peer();
    else if (wanted.board < 0)
      right = std::make_unique<end>(wanted, shared, 1U, nullptr, nullptr);
    std::atomic<int> done{0};
    std::vector<std::thread> threads;
    threads.emplace_back([&] {
      run_end(*left, shared, 0, 1);
      ++done;
    });
    if (right)
      threads.emplace_back([&] {
        run_end(*right, shared, 1, 1);
        ++done;
      });
    std::mt19937_64 chance(mix(wanted.seed, 7));
    looking.watch([&] { return done == static_cast<int>(threads.size()); },
                  [&] {
                    return "left: " + shared.ends[0].doing.text() +
                           "; right: " + shared.ends[1].doing.text();
                  },
                  [&] {
                    if (faults && chance() % 5 == 0) faults->set_one();
                  });
    for (std::thread& each : threads) each.join();
    text << "left: was " << shared.ends[0].doing.text() << "\nright: was "
         << shared.ends[1].doing.text() << '\n';
    if (wanted.kills && !shared.failed.load())
      if (const std::string problem = peer.end(wanted.patience); !problem.empty())
        shared.fail(problem);
    append_counts(text, "left: ", left->counts());
    text << "left: " << left->limits().text() << '\n' << left->first_failures();
    if (right) {
      append_counts(text, "right: ", right->counts());
      text << "right: " << right->limits().text() << '\n';
    }
    if (wanted.kills) text << "kills: " << kills << '\n';
    if (faults) text << "faults set: " << faults->count() << '\n';
  } catch (const std::exception& caught) {
    shared.fail(caught.what());
  }
  set_destroy_failure_handler(handler);
  found.operations = looking.operations();
  text << "memory in the second quarter: " << looking.text() << '\n';
  found.text = text.str();
  if (shared.failed.load())
    found.failure = shared.failure.data();
  else if (release_failures != 0 && !wanted.faults)
    found.failure = "an object could not be released";
  else
    found.failure = looking.growth(kills);
  return found;
}

int run_peer(const options& wanted, int board_descriptor) {
  end_with_parent();
  const mapped<board> memory(board_descriptor);
  board& shared = memory.get();
  try {
    end right(wanted, shared, 1, nullptr, nullptr);
    run_end(right, shared, 1, shared.ends[1].reached.load() / 8 + 1);
  } catch (const std::exception& caught) {
    shared.fail(std::string("right: ") + caught.what());
  }
  return shared.failed.load() ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace verbspp::soak
