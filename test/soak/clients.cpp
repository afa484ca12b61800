// SPDX-License-Identifier: Apache-2.0
/// \file
/// The variant of the soak that has one server and several clients.
#include "hall.hpp"
#include "processes.hpp"
#include "watcher.hpp"

#include <memory>
#include <sstream>

namespace verbspp::soak {

namespace {

/// Runs a client on this thread, and reports its failure, if any, to the hall.
void run_client_of(hall& shared, client& own, std::uint64_t first) {
  try {
    own.run(first);
    if (!own.limits().too_late().empty()) shared.fail(own.limits().too_late());
  } catch (const std::exception& caught) {
    shared.fail(caught.what());
  }
}

/// Clients as separate processes.
class client_processes {
 public:
  client_processes(const options& wanted, const mapped<hall>& memory)
      : wanted_(wanted),
        memory_(memory),
        random_(mix(wanted.seed, 3000)),
        processes_(wanted.clients) {
    for (unsigned i = 0; i < wanted.clients; ++i) start(i);
  }

  /// Occasionally kills a random client, and restarts it.
  void kill_one() {
    if (random_() % 100 != 0 || memory_.get().is_over.load()) return;
    const auto number = static_cast<unsigned>(random_() % wanted_.clients);
    desk& own = memory_.get().desks[number];
    // The client may still request another connection before it is killed.
    own.give_up(own.asked.load() + 1);
    processes_[number].kill();
    ++kills_;
    start(number);
  }
  void end() {
    for (other_process& each : processes_)
      if (const std::string problem = each.end(wanted_.patience);
          !problem.empty() && !memory_.get().failed.load())
        memory_.get().fail(problem);
  }
  [[nodiscard]] std::uint64_t kills() const { return kills_; }

 private:
  void start(unsigned number) {
    processes_[number].start({"--client=" + std::to_string(number),
                              "--peer=" + std::to_string(memory_.descriptor()),
                              "--device=" + wanted_.device, "--seed=" + std::to_string(random_()),
                              "--patience=" + std::to_string(wanted_.patience.count())});
  }

  const options& wanted_;
  const mapped<hall>& memory_;
  std::mt19937_64 random_;
  std::vector<other_process> processes_;
  std::uint64_t kills_ = 0;
};

void append_counts_of(std::ostream& out, const std::string& whose,
                      const std::map<std::string, std::uint64_t>& counts) {
  for (const auto& [name, count] : counts) out << whose << name << ": " << count << '\n';
}

}  // namespace

summary run_clients(const options& wanted) {
  summary found;
  std::ostringstream text;
  const mapped<hall> memory;
  hall& shared = memory.get();
  watcher looking(wanted, shared, [&] {
    std::uint64_t all = 0;
    for (const desk& each : shared.desks) all += each.operations.load();
    return all;
  });
  std::uint64_t kills = 0;
  try {
    server own(wanted, shared, wanted.clients);
    std::vector<std::unique_ptr<client>> clients;
    std::vector<std::jthread> threads;
    std::unique_ptr<client_processes> processes;
    std::atomic<bool> is_done{false};
    std::jthread serving([&] {
      try {
        own.run();
      } catch (const std::exception& caught) {
        shared.fail(std::string("server: ") + caught.what());
      }
      is_done = true;
    });
    if (wanted.kills) {
      processes = std::make_unique<client_processes>(wanted, memory);
    } else {
      for (unsigned i = 0; i < wanted.clients; ++i)
        clients.push_back(std::make_unique<client>(wanted, shared, i));
      for (const auto& each : clients)
        threads.emplace_back([&shared, of = each.get()] { run_client_of(shared, *of, 1); });
    }
    looking.watch([&] { return is_done.load(); },
                  [] { return std::string("a server and its clients"); },
                  [&] {
                    if (looking.operations() >= wanted.operations) shared.is_over = true;
                    if (processes) processes->kill_one();
                  });
    serving.join();
    threads.clear();
    if (processes) {
      processes->end();
      kills = processes->kills();
      text << "kills: " << kills << '\n';
    }
    append_counts_of(text, "server: ", own.counts());
    text << "server: " << own.limits().text() << '\n';
    for (std::size_t i = 0; i < clients.size(); ++i) {
      append_counts_of(text, "client " + std::to_string(i) + ": ", clients[i]->counts());
      text << "client " << i << ": " << clients[i]->limits().text() << '\n';
    }
    if (!own.limits().too_late().empty()) shared.fail(own.limits().too_late());
  } catch (const std::exception& caught) {
    shared.fail(caught.what());
  }
  found.operations = looking.operations();
  text << "memory in the second quarter: " << looking.text() << '\n';
  found.text = text.str();
  found.failure = shared.failed.load() ? shared.failure.data() : looking.growth(kills);
  return found;
}

int run_client(const options& wanted, unsigned number, int hall_descriptor) {
  end_with_parent();
  const mapped<hall> memory(hall_descriptor);
  hall& shared = memory.get();
  try {
    client own(wanted, shared, number);
    const desk& mine = shared.desks[number];
    const std::uint64_t given_up = mine.ended.load();
    if (given_up != UINT64_MAX)
      run_client_of(shared, own, std::max(given_up, mine.asked.load()) + 1);
  } catch (const std::exception& caught) {
    shared.fail(caught.what());
  }
  return shared.failed.load() ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace verbspp::soak
