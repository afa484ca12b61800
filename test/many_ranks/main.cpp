// SPDX-License-Identifier: Apache-2.0
/// \file
/// Runs ranks as processes or, with --meet, as threads of one process. Measures the time until a
/// rank is connected to all others, and the memory that it uses. Checks that all ranks complete
/// each step, and that the others detect a rank that is killed.
///
///     many_ranks [--ranks=64] [--seconds=120] [--lazy] [--csv] [--device=soft0]
///     many_ranks --meet --ranks=1000    only meets, and reads the values of some other ranks
///     many_ranks --kill --ranks=4       kills a rank before and during each step
///     many_ranks --kill --step=barrier  kills a rank only at this step
///     many_ranks --stop --ranks=4       stops a rank for some seconds: it is late but not lost
///
/// If a rank is killed, the others have to report that rank, and not ranks that exit because of it.
/// They have to detect the death before their timeout, unless the killed rank never arrived.
///
/// With --lazy, ranks connect when they first communicate, and the measurement includes the
/// connections of the first barrier. If a rank is killed after it has joined the world and before
/// that barrier, no rank is connected to it, so the others detect only at their timeout that the
/// killed rank does not answer. With --csv, prints a line for each rank: the number of ranks, the
/// rank's own number, the milliseconds until it was connected, and the private memory in KiB that
/// connecting took. To plot these values, run the program for several sizes.

#include "../held_port.hpp"
#include <verbspp/ranks.hpp>
#include <verbspp/verbspp.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

constexpr std::uint32_t posted_receives = 16;

struct options {
  std::uint32_t ranks = 64;
  std::chrono::seconds limit{120};
  std::chrono::seconds limit_of_missing{10};
  std::string device = "soft0";
  bool is_csv = false;
  bool kills = false;
  std::string step{};  ///< the only step at which a rank is killed; empty for all steps
  bool stops = false;
  bool is_lazy = false;
  bool only_meets = false;
};

/// The report that a rank sends to its parent.
struct report {
  std::uint32_t rank = 0;
  std::uint32_t has_passed = 0;
  double connect_ms = 0;
  std::uint64_t own_kib = 0;
  std::array<char, 400> words{};
};

/// The moment at which a rank is killed: before, during, or after a step.
struct killing {
  enum class when : std::uint8_t { never, before, during, after } at = when::never;
  std::size_t step = 0;
  std::uint32_t victim = 0;  ///< with --stop, this rank is stopped instead
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::string place_at(const test::held_port& port) { return "127.0.0.1:" + port.text(); }

/// Returns the amount of memory, in KiB, that this process does not share with others.
std::uint64_t own_kib() {
  std::uint64_t sum = 0;
  std::FILE* const file = std::fopen("/proc/self/smaps_rollup", "re");
  if (file == nullptr) return 0;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), file) != nullptr)
    if (std::strncmp(line.data(), "Private_", 8) == 0)
      if (const char* const colon = std::strchr(line.data(), ':'))
        sum += std::strtoull(colon + 1, nullptr, 10);
  std::fclose(file);
  return sum;
}

/// A collective step of the ranks.
struct step {
  const char* name;
  std::function<group_result<void>(world&, const wait_limit&)> run;
  /// True if no rank can finish the step before all have arrived. Has no effect for the last step.
  bool is_with_all = false;
};
const std::vector<step>& steps() {
  static const std::vector<step> all{
      {"barrier",
       [](world& mine, const wait_limit& limit) -> group_result<void> {
         VERBSPP_TRYV(mine.barrier(limit));
         return success();
       },
       true},
      {"start_barrier",
       [](world& mine, const wait_limit& limit) -> group_result<void> {
         VERBSPP_TRY(session, mine.start_barrier(limit));
         VERBSPP_TRYV(std::move(session).run());
         return success();
       },
       true},
      {"all_gather",
       [](world& mine, const wait_limit& limit) -> group_result<void> {
         VERBSPP_TRY(all, mine.all_gather(mine.rank(), limit));
         for (std::uint32_t rank = 0; rank < all.size(); ++rank)
           require(all[rank] == rank, "all_gather: another rank's value");
         return success();
       },
       true},
      {"all_reduce",
       [](world& mine, const wait_limit& limit) -> group_result<void> {
         VERBSPP_TRY(sum, mine.all_reduce(mine.rank(), std::plus<>(), limit));
         require(sum == mine.size() * (mine.size() - 1) / 2, "all_reduce: a wrong sum");
         return success();
       },
       true},
      {"broadcast",
       [](world& mine, const wait_limit& limit) -> group_result<void> {
         VERBSPP_TRY(got, mine.broadcast(mine.rank(), mine.size() - 1, limit));
         require(got == mine.size() - 1, "broadcast: another rank's value");
         return success();
       }},
      {"gather",
       [](world& mine, const wait_limit& limit) -> group_result<void> {
         VERBSPP_TRY(all, mine.gather(mine.rank(), 0, limit));
         require(all.size() == (mine.rank() == 0 ? mine.size() : 0),
                 "gather: a wrong number of values");
         return success();
       }},
      {"exchange",
       [](world& mine, const wait_limit& limit) -> group_result<void> {
         VERBSPP_TRY(all, mine.exchange(mine.rank(), limit));
         require(all.back() == mine.size() - 1, "exchange: another rank's value");
         return success();
       }},
  };
  return all;
}

bool blames(const group_error& failed, std::uint32_t victim) { return failed.peer() == victim; }

/// The first two steps are meeting and connecting. The world exists only after them.
constexpr std::size_t meeting = 0;
constexpr std::size_t connecting = 1;
constexpr std::size_t first_step = 2;

class rank_process {
 public:
  rank_process(const options& given, const killing& kills, std::uint32_t rank,
               const std::string& place)
      : given_(given), kills_(kills), rank_(rank), place_(place) {}

  /// Runs the rank. The process then stays alive until the parent has closed its end of the pipe,
  /// so that no rank loses a peer that has merely finished. In runs that kill a rank, however,
  /// every surviving rank closes its connections as soon as it has detected the death. The
  /// remaining ranks must still blame the killed rank. \returns true if everything succeeded
  [[nodiscard]] bool run(int tell, int stay) {
    report told;
    told.rank = rank_;
    try {
      told.has_passed = 1;
      work(told);
    } catch (const std::exception& e) {
      told.has_passed = 0;
      std::snprintf(told.words.data(), told.words.size(), "%s", e.what());
    }
    char nothing = 0;
    if (kills_.at != killing::when::never) world_.reset();
    return ::write(tell, &told, sizeof told) == sizeof told && ::read(stay, &nothing, 1) == 0 &&
           told.has_passed != 0;
  }

 private:
  [[nodiscard]] bool is_victim() const { return rank_ == kills_.victim; }
  [[nodiscard]] bool is_at(std::size_t step, killing::when when) const {
    return kills_.at == when && kills_.step == step;
  }
  void die_if(std::size_t step, killing::when when) const {
    if (is_victim() && is_at(step, when)) std::raise(SIGKILL);
  }
  /// Called before each step. If the victim is to die before the step, kills it. If it is to die
  /// during the step, the victim starts a thread that kills it, and rank 0 waits for a while, so
  /// that the other ranks are still in the step when the victim dies.
  void begin(std::size_t step) {
    die_if(step, killing::when::before);
    // Waits until all ranks have finished the earlier steps. Otherwise, a rank might still need the
    // victim for one of those steps when the victim dies.
    if (world_ && kills_.at != killing::when::never && kills_.step == step)
      world_->exchange(rank_, given_.limit).value();
    if (!is_at(step, killing::when::during)) return;
    if (is_victim())
      std::thread([] {
        // steady: after this pause, the others have likely begun the step; if they have not, the
        // test passes as well
        std::this_thread::sleep_for(50ms);
        std::raise(SIGKILL);
      }).detach();
    else if (rank_ == 0)
      // steady: because of this pause, the others likely wait for this rank when the victim dies;
      // if they do not, the test passes as well
      std::this_thread::sleep_for(150ms);
  }
  void end(std::size_t step) const {
    die_if(step, killing::when::after);
    // steady: this sleep does not take an hour, because the victim is killed while it sleeps
    if (is_victim() && is_at(step, killing::when::during)) std::this_thread::sleep_for(1h);
  }
  /// Returns true if a rank may already be dead when this step ends.
  [[nodiscard]] bool may_fail(std::size_t step) const {
    return kills_.at != killing::when::never && kills_.step <= step;
  }

  /// Returns true if the victim may die before it has met the others. \pre a rank is to be killed
  [[nodiscard]] bool may_be_missing() const {
    return kills_.step == meeting && kills_.at != killing::when::after;
  }

  void work(report& told) {
    const auto limit = given_.limit;
    const auto start = clock_type::now();
    begin(meeting);
    auto launched =
        tcp_bootstrap::join({.rank = rank_, .size = given_.ranks, .meeting_point = place_}, limit);
    require(launched.has_value(),
            "meeting: " + (launched.has_value() ? "" : launched.error().message()));
    // Wait for all ranks, because rank 0 closes its meeting point after it has detected the death.
    // A rank that arrived later would not find it.
    if (kills_.at != killing::when::never && !may_be_missing())
      launched.value().fence(limit).value();
    end(meeting);

    const auto opened = open_device(given_.device).value();
    const auto domain = protection_domain::allocate(opened).value();
    const auto pool = message_pool::create(domain, 2 * posted_receives, 256).value();
    const auto like = domain.build_channel().max_send_work_requests(8).max_inline_data(64).waiting(
        wait_mode::sleep());
    const std::uint64_t kib_before = own_kib();
    begin(connecting);
    const group_options receives{.receives = posted_receives};
    auto joined = given_.is_lazy
                      ? world::join_lazily(std::move(launched).value(), like, pool, limit, receives)
                      : world::join(std::move(launched).value(), like, pool, limit, receives);
    if (!joined.has_value()) {
      require(may_fail(connecting), "join: " + joined.error().message());
      require(blames(joined.error(), kills_.victim),
              "join blames another rank: " + joined.error().message());
      return;
    }
    world& mine = world_.emplace(std::move(joined).value());
    end(connecting);
    if (given_.is_lazy) {
      require(mine.peers().connected().size() == 1,
              "other ranks were connected before they were used");
      const group_results first = mine.barrier(limit);
      if (may_fail(connecting))
        return require(!first.has_value(), "a barrier succeeded without the victim");
      require(first.has_value(), first.has_value() ? "" : first.message());
    }
    told.connect_ms = std::chrono::duration<double, std::milli>(clock_type::now() - start).count();
    told.own_kib = own_kib() - std::min(own_kib(), kib_before);
    check_receives(mine, pool);

    for (std::size_t i = 0; i < steps().size(); ++i) {
      const std::size_t number = first_step + i;
      const auto began = clock_type::now();
      begin(number);
      if (given_.stops && is_victim() && number == first_step + 2) std::raise(SIGSTOP);
      const auto done = steps()[i].run(mine, limit);
      end(number);
      require(
          done.has_value() || may_fail(number),
          std::string(steps()[i].name) + ": " + (done.has_value() ? "" : done.error().message()));
      if (!may_fail(number)) continue;
      require(done.has_value() || blames(done.error(), kills_.victim),
              std::string(steps()[i].name) +
                  " blames another rank: " + (done.has_value() ? "" : done.error().message()));
      // If this step did not wait for all ranks, the next barrier detects the death, because it
      // needs every rank.
      const group_results all = mine.barrier(limit);
      require(!all.has_value(), "a barrier succeeded without the victim");
      require(blames(all.error(), kills_.victim),
              "a barrier blames another rank: " + all.message());
      require(all.failed() == 1, "a barrier blames other ranks, too: " + all.message());
      require(clock_type::now() < began + given_.limit,
              "the death was not detected before the limit");
      return;
    }
  }

  /// Checks that the number of posted receives does not depend on the number of ranks.
  void check_receives(world& mine, const message_pool& pool) const {
    for (const std::uint32_t rank : mine.peers().all())
      require(mine.peers()[rank].capacities().max_receive_work_requests == 0,
              "a channel has receives of its own");
    require(mine.peers().hub().receives_posted() == posted_receives,
            "the number of posted receives is wrong");
    require(pool.available() == pool.size() - posted_receives,
            "the number of used places is wrong");
  }

  const options& given_;
  const killing& kills_;
  std::uint32_t rank_;
  const std::string& place_;
  std::optional<world> world_{};
};

/// The ranks in one run, and their reports.
class run_of_ranks {
 public:
  run_of_ranks(const options& given, const killing& kills) : given_(given), kills_(kills) {
    const std::string place = place_at(port_);
    make_pipe(tell_);
    make_pipe(stay_);
    ends_of_parent().push_back(stay_[1]);
    for (std::uint32_t rank = 0; rank < given.ranks; ++rank) start(rank, place);
    ::close(tell_[1]);
    ::close(stay_[0]);
  }
  run_of_ranks(const run_of_ranks&) = delete;
  run_of_ranks& operator=(const run_of_ranks&) = delete;
  ~run_of_ranks() {
    let_go();
    ::close(tell_[0]);
    // If the run has failed, some of its ranks may still exist.
    for (const pid_t each : processes_) {
      ::kill(each, SIGKILL);
      ::waitpid(each, nullptr, 0);
    }
  }

  /// Waits until the victim has stopped. Resumes it after `time`, during which the other ranks have
  /// to wait for it.
  void hold_victim(std::chrono::seconds time) {
    const pid_t victim = processes_.at(kills_.victim);
    int status = 0;
    require(::waitpid(victim, &status, WUNTRACED) == victim && WIFSTOPPED(status),
            "the victim did not stop");
    // steady: the test requires the victim to be stopped for this time
    std::this_thread::sleep_for(time);
    require(::kill(victim, SIGCONT) == 0, "the victim cannot be resumed");
  }

  /// Returns the reports of all ranks except the one that was killed, ordered by rank.
  std::vector<report> reports() {
    const std::size_t expected = given_.ranks - (kills_.at == killing::when::never ? 0 : 1);
    std::vector<report> all;
    report told;
    while (all.size() < expected && ::read(tell_[0], &told, sizeof told) == sizeof told)
      all.push_back(told);
    require(all.size() == expected, "not every rank has sent a report");
    std::ranges::sort(all, {}, &report::rank);
    std::string failures;
    for (const report& each : all)
      if (each.has_passed == 0)
        failures += "\nrank " + std::to_string(each.rank) + ": " + each.words.data();
    require(failures.empty(), "these ranks have failed:" + failures);
    // Permits all ranks to exit, and waits until they have done so.
    let_go();
    for (const pid_t each : std::exchange(processes_, {})) {
      int status = 0;
      ::waitpid(each, &status, 0);
      const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      require((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                  (is_killed && kills_.at != killing::when::never),
              "a rank did not exit normally");
    }
    return all;
  }

 private:
  /// Returns the write ends of the pipes `stay_` of all runs. A forked child inherits them, and
  /// must close them.
  static std::vector<int>& ends_of_parent() {
    static std::vector<int> all;
    return all;
  }
  /// Permits all ranks to exit.
  void let_go() {
    if (stay_[1] < 0) return;
    std::erase(ends_of_parent(), stay_[1]);
    ::close(std::exchange(stay_[1], -1));
  }
  static void make_pipe(std::array<int, 2>& ends) { require(::pipe(ends.data()) == 0, "pipe"); }
  void start(std::uint32_t rank, const std::string& place) {
    const pid_t made = ::fork();
    require(made >= 0, "fork");
    if (made != 0) {
      processes_.push_back(made);
      return;
    }
    ::close(tell_[0]);
    for (const int each : ends_of_parent()) ::close(each);
    bool is_well = false;
    {
      rank_process process(given_, kills_, rank, place);
      is_well = process.run(tell_[1], stay_[0]);
    }
    std::_Exit(is_well ? 0 : 1);
  }

  const options& given_;
  const killing& kills_;
  test::held_port port_{};
  std::array<int, 2> tell_{-1, -1};
  std::array<int, 2> stay_{-1, -1};
  std::vector<pid_t> processes_{};
};

options read_options(int count, char** arguments) {
  options given;
  for (int i = 1; i < count; ++i) {
    const std::string_view each = arguments[i];
    const std::size_t equals = each.find('=');
    const std::string_view name = each.substr(0, equals);
    const std::string value(equals == std::string_view::npos ? "" : each.substr(equals + 1));
    if (name == "--ranks")
      given.ranks = static_cast<std::uint32_t>(std::stoul(value));
    else if (name == "--seconds")
      given.limit = std::chrono::seconds(std::stoul(value));
    else if (name == "--device")
      given.device = value;
    else if (name == "--csv")
      given.is_csv = true;
    else if (name == "--lazy")
      given.is_lazy = true;
    else if (name == "--meet")
      given.only_meets = true;
    else if (name == "--kill")
      given.kills = true;
    else if (name == "--step")
      given.step = value;
    else if (name == "--stop")
      given.stops = true;
    else
      throw std::runtime_error("unknown option: " + std::string(each));
  }
  return given;
}

/// A planned run, in which one rank is killed.
struct planned {
  options given;
  killing kills;
  std::string words;
};

std::vector<planned> plans_for(const options& given) {
  constexpr std::array whens{killing::when::before, killing::when::during, killing::when::after};
  constexpr std::array names{"before", "during", "after"};
  std::vector<planned> all;
  for (std::size_t number = meeting; number < first_step + steps().size(); ++number)
    for (std::size_t i = 0; i < whens.size(); ++i) {
      const bool is_last = number + 1 == first_step + steps().size();
      // "Before" a step means the same as "after" the previous step, so it is tried only for the
      // first step. No rank would detect a death after the last step.
      if (whens[i] == killing::when::before && number != meeting) continue;
      if (whens[i] == killing::when::after && is_last) continue;
      const std::string name = number == meeting      ? "meeting"
                               : number == connecting ? "connecting"
                                                      : steps()[number - first_step].name;
      if (!given.step.empty() && given.step != name) continue;
      // Rank 0 hosts the meeting point, so it is killed only after all ranks have passed that
      // point. Otherwise, the others would report that the meeting point is missing.
      const bool is_meeting_over = number >= first_step && steps()[number - first_step].is_with_all;
      for (const std::uint32_t victim : {2U, 0U}) {
        if (victim == 0 && (whens[i] != killing::when::after || !is_meeting_over)) continue;
        planned& made = all.emplace_back(planned{
            .given = given,
            .kills = {.at = whens[i], .step = number, .victim = victim},
            .words = "rank " + std::to_string(victim) + " is killed " + names[i] + ' ' + name});
        // Only when their limit expires do the other ranks detect that a rank never arrives or,
        // with --lazy, that it died before any rank was connected to it. So the limit is short.
        const bool is_unconnected = number == connecting && given.is_lazy;
        if ((number == meeting && whens[i] != killing::when::after) || is_unconnected)
          made.given.limit = given.limit_of_missing;
      }
    }
  require(!all.empty(), "no step has the name that --step gives");
  return all;
}

std::vector<std::unique_ptr<run_of_ranks>> start(std::span<const planned> plans) {
  std::vector<std::unique_ptr<run_of_ranks>> runs;
  for (const planned& each : plans)
    runs.push_back(std::make_unique<run_of_ranks>(each.given, each.kills));
  return runs;
}

void finish(std::span<const planned> plans,
            const std::vector<std::unique_ptr<run_of_ranks>>& runs) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    std::cout << plans[i].words << '\n' << std::flush;
    static_cast<void>(runs[i]->reports());
  }
}

/// Runs several sets of ranks at a time, because they spend most of their time waiting. The sets
/// that wait for a timeout are started first, and continue in parallel with all others.
void kill_at_each_step(const options& given) {
  constexpr std::size_t at_a_time = 4;
  std::vector<planned> until_limit;
  std::vector<planned> others;
  for (const planned& each : plans_for(given))
    (each.given.limit == given.limit_of_missing ? until_limit : others).push_back(each);
  const auto waiting = start(until_limit);
  for (std::span<const planned> left(others); !left.empty();) {
    const auto some = left.first(std::min(at_a_time, left.size()));
    finish(some, start(some));
    left = left.subspan(some.size());
  }
  finish(until_limit, waiting);
}

void connect_all(const options& given) {
  const killing none{.victim = 2};
  run_of_ranks run(given, none);
  // While the victim is stopped, the other ranks check for lost ranks several times.
  if (given.stops) run.hold_victim(4s);
  const std::vector<report> all = run.reports();
  if (given.is_csv) {
    std::cout << "ranks,rank,connect_ms,own_kib\n";
    for (const report& each : all)
      std::cout << given.ranks << ',' << each.rank << ',' << each.connect_ms << ',' << each.own_kib
                << '\n';
    return;
  }
  const auto latest = std::ranges::max(all, {}, &report::connect_ms);
  const auto largest = std::ranges::max(all, {}, &report::own_kib);
  std::cout << given.ranks << " ranks, connected in " << latest.connect_ms << " ms, with up to "
            << largest.own_kib << " KiB each\n";
}

/// Runs ranks as threads that only meet. Each rank publishes about as many bytes as in a world that
/// is joined lazily, and reads the values of the ranks whose distances from it are powers of two.
void meet_all(const options& given) {
  const test::held_port port;
  const std::string place = place_at(port);
  const std::uint64_t before = own_kib();
  const auto start = clock_type::now();
  std::vector<std::string> words(given.ranks);
  std::vector<std::thread> threads;
  const auto meet = [&](std::uint32_t rank) {
    auto mine = tcp_bootstrap::join({.rank = rank, .size = given.ranks, .meeting_point = place},
                                    given.limit)
                    .value();
    std::array<std::byte, 420> told{};
    std::memcpy(told.data(), &rank, sizeof rank);
    mine.put("rank", told).value();
    mine.fence(given.limit).value();
    for (std::uint32_t distance = 1; distance < given.ranks; distance *= 2) {
      const std::uint32_t other = (rank + distance) % given.ranks;
      std::array<std::byte, 420> theirs{};
      require(mine.get(other, "rank", theirs, given.limit).value() == theirs.size(),
              "a value has a wrong size");
      require(std::memcmp(theirs.data(), &other, sizeof other) == 0,
              "a value belongs to another rank");
    }
    mine.fence(given.limit).value();
  };
  for (std::uint32_t rank = 0; rank < given.ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        meet(rank);
      } catch (const std::exception& e) {
        words[rank] = std::string("rank ") + std::to_string(rank) + ": " + e.what();
      }
    });
  for (std::thread& each : threads) each.join();
  for (const std::string& each : words) require(each.empty(), each);
  const double ms = std::chrono::duration<double, std::milli>(clock_type::now() - start).count();
  std::cout << given.ranks << " ranks have met in " << ms << " ms, in one process, with "
            << own_kib() - before << " KiB at the end\n";
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const options given = read_options(count, arguments);
    if (given.only_meets)
      meet_all(given);
    else if (given.kills)
      kill_at_each_step(given);
    else
      connect_all(given);
    return 0;
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
}
