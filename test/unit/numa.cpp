// SPDX-License-Identifier: Apache-2.0

#include "../catch.hpp"
#include <verbspp/device/numa.hpp>

#include <sched.h>
#include <stdlib.h>  // mkdtemp

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <thread>

using namespace verbspp;

namespace {

/// A temporary directory in place of /sys.
class sysfs {
 public:
  sysfs() : root_(std::filesystem::temp_directory_path() / "verbspp-sysfs-XXXXXX") {
    std::string name = root_.string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  ~sysfs() { std::filesystem::remove_all(root_); }
  sysfs(const sysfs&) = delete;
  sysfs& operator=(const sysfs&) = delete;

  void node_of_device(const std::string& content) {
    write("class/infiniband/some0/device/numa_node", content);
  }
  void processors_of(unsigned node, const std::string& content) {
    write("devices/system/node/node" + std::to_string(node) + "/cpulist", content);
  }
  [[nodiscard]] auto node() const { return detail::numa_node_of(root_.c_str(), "some0"); }
  [[nodiscard]] auto bind(numa_binding how) const {
    return detail::bind_this_thread_near(root_.c_str(), "some0", how);
  }

 private:
  void write(const std::string& file, const std::string& content) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << content;
  }

  std::filesystem::path root_;
};

[[nodiscard]] cpu_set_t affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  return set;
}

[[nodiscard]] int first_of(const cpu_set_t& set) {
  for (int each = 0; each < CPU_SETSIZE; ++each)
    if (CPU_ISSET(each, &set)) return each;
  FAIL("the affinity mask of this thread is empty");
  return -1;
}

/// Runs the test on a separate thread, because binding changes the thread that calls it.
template <class Test>
void on_a_thread(Test test) {
  std::thread(test).join();
}

using enum numa_binding;

}  // namespace

TEST_CASE("the NUMA node of a device is the node that the kernel reports") {
  sysfs sys;
  CHECK_FALSE(sys.node().value());  // there is no such device
  sys.node_of_device("3\n");
  CHECK(sys.node().value() == numa_node(3));
  sys.node_of_device("0");
  CHECK(sys.node().value() == numa_node(0));
  sys.node_of_device("-1\n");
  CHECK_FALSE(sys.node().value());
}

TEST_CASE("an invalid NUMA node is an error") {
  sysfs sys;
  for (const char* const content : {"", "\n", "-2\n", "x\n", "1x\n", " 1\n", "+1\n", "1024\n",
                                    "4294967296\n", "99999999999999999999\n"}) {
    INFO(content);
    sys.node_of_device(content);
    const auto told = sys.node();
    REQUIRE(told.has_error());
    CHECK(told.error() == error_kind::driver);
  }
  CHECK(detail::numa_node_of("/sys", "").error() == error_kind::invalid_input);
  CHECK(detail::numa_node_of("/sys", std::string(5000, 'x').c_str()).has_error());
}

TEST_CASE("a thread can be bound to the processors of the device's node") {
  on_a_thread([] {
    const int processor = first_of(affinity());
    sysfs sys;
    sys.node_of_device("1\n");
    // Processors that the machine does not have are ignored.
    sys.processors_of(1, std::to_string(processor) + ",8000-8191\n");
    CHECK(sys.bind(strict).value());
    const cpu_set_t bound = affinity();
    CHECK(CPU_COUNT(&bound) == 1);
    CHECK(CPU_ISSET(processor, &bound));
    CHECK(sys.bind(as_far_as_possible).value());
  });
}

TEST_CASE("binding a thread returns an error or leaves it unbound if it cannot be bound") {
  on_a_thread([] {
    const cpu_set_t before = affinity();
    sysfs sys;
    const auto check = [&](error_kind kind) {
      const auto refused = sys.bind(strict);
      REQUIRE(refused.has_error());
      CHECK(refused.error() == kind);
      CHECK(refused.error().hint() != nullptr);
      CHECK_FALSE(sys.bind(as_far_as_possible).value());
      const cpu_set_t after = affinity();
      CHECK(CPU_EQUAL(&before, &after));
    };
    check(error_kind::not_supported);
    sys.node_of_device("-1\n");
    check(error_kind::not_supported);
    sys.node_of_device("0\n");
    sys.processors_of(0, "8190-8191\n");
    check(error_kind::invalid_input);
    sys.processors_of(0, "\n");  // a node without processors
    check(error_kind::invalid_input);
  });
}

TEST_CASE("an invalid list of processors is an error and binds nothing") {
  on_a_thread([] {
    const cpu_set_t before = affinity();
    sysfs sys;
    sys.node_of_device("0\n");
    CHECK(sys.bind(strict).error() == error_kind::driver);  // the list of processors does not exist
    for (const char* const list : {"x", "0-", "-1", "0,", ",0", "0 1", "1-0", "8192", "0-8192",
                                   "0-4294967296", "0--1", "0-1-2"}) {
      INFO(list);
      sys.processors_of(0, list);
      for (const numa_binding how : {strict, as_far_as_possible}) {
        const auto refused = sys.bind(how);
        REQUIRE(refused.has_error());
        CHECK(refused.error() == error_kind::driver);
      }
    }
    const cpu_set_t after = affinity();
    CHECK(CPU_EQUAL(&before, &after));
  });
}
