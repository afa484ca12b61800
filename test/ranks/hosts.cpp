// SPDX-License-Identifier: Apache-2.0
#include "../held_port.hpp"
#include "worlds.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::test;
using namespace std::chrono_literals;

namespace {

[[nodiscard]] host_list list_of(std::vector<host_entry> hosts, std::uint16_t port) {
  return must(host_list::from(hosts, port));
}
// steady: the port is only a number in a list of hosts, and no socket is opened on it
[[nodiscard]] error why_not_from(std::vector<host_entry> hosts, std::uint16_t port = 4711) {
  return failure_of(host_list::from(hosts, port));
}

/// A temporary file with the given text.
class file_of {
 public:
  explicit file_of(std::string_view text) {
    const int made = ::mkstemp(path_.data());
    if (made < 0) throw failure(__FILE__, __LINE__, "mkstemp");
    ::close(made);
    std::ofstream(path()) << text;
  }
  file_of(const file_of&) = delete;
  file_of& operator=(const file_of&) = delete;
  ~file_of() { ::unlink(path()); }

  [[nodiscard]] const char* path() const { return path_.data(); }

 private:
  std::array<char, 32> path_{"/tmp/verbspp_hosts_XXXXXX"};
};

void forget_launch() {
  for (const char* each :
       {"VERBSPP_RANK", "VERBSPP_WORLD_SIZE", "VERBSPP_MEETING_POINT", "VERBSPP_HOSTS"})
    ::unsetenv(each);
}

}  // namespace

TEST_CASE("a list of hosts contains the host of each rank", "[not-in-vm]") {
  const host_list hosts = list_of({{"node1", 1}, {"node2", 3}, {"::1", 2}}, 4711);
  CHECK(hosts.size() == 6);
  CHECK(hosts.port() == 4711);
  const std::array<std::string_view, 7> expected{"node1", "node2", "node2", "node2",
                                                 "::1",   "::1",   ""};
  for (std::uint32_t rank = 0; rank < expected.size(); ++rank)
    CHECK(hosts.host_of(rank) == expected[rank]);
  CHECK(must(hosts.rank_on("node1")) == 0);
  CHECK(failure_of(hosts.rank_on("node2")) == error_kind::invalid_input);
  CHECK(failure_of(hosts.rank_on("node2")).message().find("node2") != std::string::npos);
  CHECK(failure_of(hosts.rank_on("node3")) == error_kind::not_found);

  CHECK(must(hosts.first(3)) == list_of({{"node1", 1}, {"node2", 2}}, 4711));
  CHECK(must(hosts.first(4)) == list_of({{"node1", 1}, {"node2", 3}}, 4711));
  CHECK(must(hosts.first(6)) == hosts);
  CHECK(failure_of(hosts.first(0)) == error_kind::invalid_input);
  CHECK(failure_of(hosts.first(0)).message().find("above") == std::string::npos);
  CHECK(failure_of(hosts.first(7)) == error_kind::invalid_input);

  CHECK(why_not_from({}) == error_kind::invalid_input);
  CHECK(why_not_from({{"node1", 1}}, 0) == error_kind::invalid_input);
  CHECK(why_not_from({{"", 1}}) == error_kind::invalid_input);
  CHECK(why_not_from({{"node1", 0}}) == error_kind::invalid_input);
  CHECK(why_not_from({{"node 1", 1}}) == error_kind::invalid_input);
  CHECK(why_not_from({{std::string(254, 'n'), 1}}) == error_kind::invalid_input);
  CHECK(why_not_from({{"node1", 65'535}, {"node2", 1}}) == error_kind::invalid_input);
  CHECK(why_not_from({{"node1", 1}, {"node2", 1}, {"node1", 1}}).message().find("\"node1\"") !=
        std::string::npos);
}

TEST_CASE("ranks meet by a list of hosts if all have the same list", "[not-in-vm]") {
  const testbed bed;
  const held_port port;
  const host_list hosts = list_of({{"localhost", 3}}, port.number());
  on_threads(3, [&](std::uint32_t rank) {
    auto launched = must(hosts_bootstrap::join(hosts, rank, patience));
    require(launched.rank() == rank && launched.size() == 3, "the rank or the size is wrong");
    auto mine = must(world::join(std::move(launched), bed.domain.build_channel(), patience));
    require(must(mine.all_gather(rank, patience)) == std::vector<std::uint32_t>{0, 1, 2},
            "the ranks are not in order");
    require(mine.barrier(patience).has_value(), "the barrier failed");
  });
  CHECK(failure_of(hosts_bootstrap::join(hosts, 3, patience)) == error_kind::invalid_input);

  const host_list first = list_of({{"localhost", 1}, {"node2", 1}}, port.number());
  const host_list other = list_of({{"localhost", 1}, {"node3", 1}}, port.number());
  auto root = must(hosts_bootstrap::join(first, 0, patience));
  CHECK(failure_of(hosts_bootstrap::join(other, 1, patience)) == error_kind::mismatch);
  const auto right = must(hosts_bootstrap::join(first, 1, patience));
  CHECK(right.rank() == 1);
}

TEST_CASE("a list of hosts that was moved from has no ranks, and is refused", "[not-in-vm]") {
  const std::array hosts{host_entry{.name = "localhost", .ranks = 2}};
  auto list = must(host_list::from(hosts, 4711));
  CHECK(list.size() == 2);
  const host_list kept = std::move(list);
  CHECK(kept.size() == 2);
  CHECK(list.size() == 0);  // NOLINT(bugprone-use-after-move)
  CHECK(failure_of(list.first(1)) == error_kind::invalid_input);
  CHECK(failure_of(hosts_bootstrap::join(list, 0, patience)) == error_kind::invalid_input);
}

#ifdef VERBSPP_TEST_HAS_JSON

TEST_CASE("a list of hosts is read from JSON with comments", "[not-in-vm]") {
  const host_list hosts = must(host_list::parse(R"(
      // The machines.
      {
        "world": "heat", /* among others */
        "hosts": ["node1", {"ranks": 4, "name": "node2"}, {"name": "node3"}],
        "port": 4711,
        "size": 3
      })"));
  CHECK(hosts.world() == "heat");
  CHECK(hosts.port() == 4711);
  CHECK(std::vector(hosts.hosts().begin(), hosts.hosts().end()) ==
        std::vector<host_entry>{{"node1", 1}, {"node2", 2}});
  CHECK(must(host_list::parse(R"({"port":1,"hosts":["a"]})")) == list_of({{"a", 1}}, 1));
}

TEST_CASE("errors in a list of hosts are reported with line and name", "[not-in-vm]") {
  struct wrong {
    const char* text;
    std::vector<const char*> words;
  };
  const std::vector<wrong> all{
      {"", {"line 1", "not valid JSON"}},
      {"\n\n{\"port\": 4711,\n \"hosts\"", {"line 4", "not valid JSON"}},
      {"{\"port\": 4711, \"hosts\": [\"a\"]} x", {"line 1", "not valid JSON"}},
      {"{\"port\": 4711, \"hosts\": [\"a\"],}", {"not valid JSON"}},
      {"# a comment of another kind\n{}", {"line 1", "not valid JSON"}},
      {"{\"port\": 4711, \"hosts\": [\"a\xff\"]}", {"not valid JSON"}},
      {"[1]", {"must be a JSON object"}},
      {"3", {"must be a JSON object"}},
      {"null", {"must be a JSON object"}},
      {"{}", {"line 1", "\"hosts\" is missing"}},
      {"{\n\"hosts\": [\"a\"]\n}", {"line 3", "\"port\" is missing"}},
      {"{\n\"port\": 4711\n}", {"line 3", "\"hosts\" is missing"}},
      {"{\"port\": 4711, \"hosts\": []}", {"no hosts"}},
      {"{\"port\": 4711,\n\"hosts\": [{\"ranks\": 2}]}", {"line 2", "\"name\" is missing"}},
      {"{\"port\": 4711,\n\"prot\": 1}", {"line 2", "\"prot\"", "unknown"}},
      {"{\"port\": 4711, \"hosts\": [\n{\"name\": \"a\",\n\"slots\": 4}]}",
       {"line 3", "\"slots\"", "unknown"}},
      {"{\"port\": 4711,\n\"port\":\n4711}", {"line 2", "\"port\"", "twice"}},
      {"{\"hosts\": [\"a\"], \"port\": 1,\n\"hosts\": [\"b\"]}", {"line 2", "\"hosts\"", "twice"}},
      {"{\"hosts\": [{\"name\": \"a\", \"name\": \"b\"}]}", {"\"name\"", "twice"}},
      {"{\"port\": 4711, \"hosts\": [\"node1\",\n\"node2\",\n\"node1\"]}",
       {"line 3", "\"node1\"", "twice", "see line 1"}},
      {"{\"port\": 4711, \"hosts\": [\"node1\",\n{\"name\": \"node1\", \"ranks\": 2}]}",
       {"line 2", "\"node1\"", "different numbers", "see line 1"}},
      {"{\"hosts\": [\"a\"],\n\"port\": 0\n}", {"line 2", "\"port\"", "1 to 65535"}},
      {"{\"hosts\": [\"a\"],\n\"port\": 65536\n}", {"line 2", "\"port\""}},
      {"{\"hosts\": [\"a\"],\n\"port\": -1\n}", {"line 2", "\"port\"", "an integer from 1"}},
      {"{\"hosts\": [\"a\"],\n\"port\": 1.5\n}", {"line 2", "\"port\"", "an integer from 1"}},
      {"{\"hosts\": [\"a\"],\n\"port\": 1e999\n}", {"line 2", "\"port\"", "an integer from 1"}},
      {"{\"hosts\": [\"a\"],\n\"port\": 4294967296\n}", {"line 2", "\"port\"", "to 65535"}},
      {"{\"hosts\": [\"a\"],\n\"port\": \"http\"\n}", {"line 2", "\"port\"", "an integer"}},
      {"{\"hosts\": [\"a\"],\n\"port\": true\n}",
       {"line 2", "\"port\"", "an integer from 1 to 65535"}},
      {"{\"hosts\": [\"a\"],\n\"port\": null\n}", {"line 2", "\"port\"", "an integer"}},
      {"{\"hosts\":\n\"a\"}", {"line 2", "\"hosts\"", "must be a list"}},
      {"{\"hosts\": [1]}", {"each host must be a string or an object"}},
      {"{\"hosts\": [[\"a\"]]}", {"each host must be a string or an object"}},
      {"{\"hosts\": [{\"name\": {}}]}", {"\"name\"", "must be a string"}},
      {"{\"hosts\": [{\"name\": \"a\", \"ranks\": \"4\"}]}", {"\"ranks\"", "an integer"}},
      {"{\"port\": 1, \"hosts\": [\n{\"name\": \"a\", \"ranks\": 0}]}",
       {"line 2", "\"a\"", "at least one rank"}},
      {"{\"port\": 1, \"hosts\": [\"\"]}", {"have a name"}},
      {"{\"port\": 1, \"hosts\": [\"a b\"]}", {"\"a?b\"", "spaces"}},
      {"{\"port\": 1, \"hosts\": [\"a\"],\n\"size\": 2}", {"line 2", "\"size\"", "at most"}},
      {"{\"port\": 1, \"hosts\": [\"a\"],\n\"size\": 0}", {"line 2", "\"size\""}},
      {"{\"port\": 1, \"hosts\": [\"a\"],\n\"world\": "
       "\"12345678901234567890123456789012345678901\"}",
       {"line 2", "\"world\"", "40"}},
  };
  for (const wrong& each : all) {
    const error why = failure_of(host_list::parse(each.text));
    INFO(each.text << "\n" << why.message());
    CHECK(why == error_kind::invalid_input);
    for (const char* const word : each.words) CHECK(why.message().find(word) != std::string::npos);
  }
}

TEST_CASE("a process finds its rank by a list of hosts in a file", "[not-in-vm]") {
  forget_launch();
  const auto why_not = [] { return failure_of(find_bootstrap(50ms)); };
  CHECK(failure_of(hosts_bootstrap::from_environment(50ms)) == error_kind::not_found);
  ::setenv("VERBSPP_HOSTS", "/nowhere/at/all", 1);
  CHECK(why_not() == error_kind::not_found);
  ::setenv("VERBSPP_HOSTS", "/", 1);
  CHECK(why_not() != error_kind::timed_out);

  std::array<char, 256> own{};
  REQUIRE(::gethostname(own.data(), own.size() - 1) == 0);
  const held_port port;
  const auto with_hosts = [&](const std::string& hosts) {
    return "{\"port\": " + port.text() + ", \"hosts\": [" + hosts + "]}";
  };
  {
    // The process finds its rank by its own host name, so VERBSPP_RANK is not needed.
    const file_of alone(with_hosts("\"" + std::string(own.data()) + "\""));
    ::setenv("VERBSPP_HOSTS", alone.path(), 1);
    CHECK(must(find_bootstrap(patience)).size() == 1);
    ::setenv("VERBSPP_RANK", "1", 1);
    CHECK(why_not() == error_kind::invalid_input);
  }
  const file_of two(with_hosts("\"localhost\", \"somewhere-else\""));
  ::setenv("VERBSPP_HOSTS", two.path(), 1);
  ::setenv("VERBSPP_WORLD_SIZE", "1", 1);
  ::setenv("VERBSPP_RANK", "0", 1);
  CHECK(must(find_bootstrap(patience)).size() == 1);
  ::setenv("VERBSPP_WORLD_SIZE", "3", 1);
  CHECK(why_not() == error_kind::invalid_input);
  ::setenv("VERBSPP_WORLD_SIZE", "all", 1);
  CHECK(why_not().message().find("VERBSPP_WORLD_SIZE") != std::string::npos);
  ::unsetenv("VERBSPP_WORLD_SIZE");
  ::unsetenv("VERBSPP_RANK");
  CHECK(why_not() == error_kind::not_found);  // the list does not contain this host's own name
  ::setenv("VERBSPP_MEETING_POINT", "localhost:1", 1);
  CHECK(why_not().message().find("VERBSPP_MEETING_POINT") != std::string::npos);
  forget_launch();
}

#else

TEST_CASE("without JSON support, a file of hosts is refused with an explanation", "[not-in-vm]") {
  CHECK(failure_of(host_list::parse("{}")) == error_kind::not_supported);
}

#endif
