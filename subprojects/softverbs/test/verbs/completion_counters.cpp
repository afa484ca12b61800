// SPDX-License-Identifier: Apache-2.0
// Completion counters, which older headers don't declare.
#include "base/newer_verbs.hpp"
#include "catch.hpp"
#include "support/fabric.hpp"

#include <dlfcn.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace newer = softverbs::newer;

namespace {

constexpr std::uint32_t of_sends = 1U << 0;
constexpr std::uint32_t of_receives = 1U << 1;
constexpr std::uint32_t of_reads = 1U << 2;
constexpr std::uint32_t of_remote_reads = 1U << 3;
constexpr std::uint32_t of_writes = 1U << 4;

template <typename Function>
Function* counter_verb(const char* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  REQUIRE(found != nullptr);
  return found;
}

/// A counter, which the destructor destroys unless the test has done so.
struct one_counter {
  explicit one_counter(ibv_context* verbs, std::uint32_t type = newer::comp_cntr_of_requests) {
    newer::comp_cntr_init_attr asked{0, type, 0};
    counter = counter_verb<newer::comp_cntr*(ibv_context*, newer::comp_cntr_init_attr*)>(
        "ibv_create_comp_cntr")(verbs, &asked);
    REQUIRE(counter != nullptr);
  }
  one_counter(const one_counter&) = delete;
  one_counter& operator=(const one_counter&) = delete;
  ~one_counter() { CHECK(destroy() == 0); }

  int destroy() {
    if (counter == nullptr) return 0;
    const int result = counter_verb<int(newer::comp_cntr*)>("ibv_destroy_comp_cntr")(counter);
    if (result == 0) counter = nullptr;
    return result;
  }
  int attach(ibv_qp* pair, std::uint32_t operations) {
    newer::comp_cntr_attach_attr asked{0, operations};
    return counter_verb<int(ibv_qp*, newer::comp_cntr*, newer::comp_cntr_attach_attr*)>(
        "ibv_qp_attach_comp_cntr")(pair, counter, &asked);
  }
  void change(const char* name, std::uint64_t value) {
    REQUIRE(counter_verb<int(newer::comp_cntr*, std::uint64_t)>(name)(counter, value) == 0);
  }
  std::uint64_t read(const char* name) {
    std::uint64_t value = 0;
    REQUIRE(counter_verb<int(newer::comp_cntr*, std::uint64_t*)>(name)(counter, &value) == 0);
    return value;
  }
  std::uint64_t completed() { return read("ibv_read_comp_cntr"); }
  std::uint64_t failed() { return read("ibv_read_err_comp_cntr"); }

  newer::comp_cntr* counter = nullptr;
};

}  // namespace

TEST_CASE("completion counters: limits are reported and programs can set the values") {
  const open_context device;
  newer::comp_cntr_caps found{};
  CHECK(counter_verb<int(ibv_context*, newer::comp_cntr_caps*, std::size_t)>(
            "_ibv_query_comp_cntr_caps")(device.verbs, &found, sizeof(found)) == 0);
  CHECK(found.max_value == std::numeric_limits<std::uint64_t>::max());
  CHECK(found.max_counters > 0);
  CHECK(found.attach_operations == (of_sends | of_receives | of_reads | of_writes));
  one_counter counter(device.verbs);
  CHECK(counter.counter->context == device.verbs);
  counter.change("ibv_set_comp_cntr", 5);
  counter.change("ibv_inc_comp_cntr", 3);
  counter.change("ibv_set_err_comp_cntr", found.max_value);
  counter.change("ibv_inc_err_comp_cntr", 2);
  CHECK(counter.completed() == 8);
  CHECK(counter.failed() == 1);
  newer::comp_cntr_init_attr unknown{0, 2, 0};
  CHECK(refusal([&] {
          return counter_verb<newer::comp_cntr*(ibv_context*, newer::comp_cntr_init_attr*)>(
              "ibv_create_comp_cntr")(device.verbs, &unknown);
        }) == EINVAL);
}

TEST_CASE("completion counters: each counts the kinds of operations for which it was attached") {
  endpoint left;
  one_counter requests(left.context);
  one_counter reads(left.context);
  one_counter bytes(left.context, newer::comp_cntr_of_bytes);
  {
    options wanted;
    wanted.host = &left;
    endpoint right(wanted);
    endpoint sender(wanted);
    CHECK(requests.attach(sender.pair, of_sends | of_writes) == 0);
    CHECK(reads.attach(sender.pair, of_reads | of_writes) == EBUSY);
    CHECK(reads.attach(sender.pair, of_reads) == 0);
    CHECK(reads.attach(sender.pair, of_remote_reads) == EOPNOTSUPP);
    CHECK(reads.attach(sender.pair, 0) == EINVAL);
    CHECK(bytes.attach(right.pair, of_receives) == 0);
    CHECK(bytes.destroy() == EBUSY);
    const address there = right.here();
    sender.connect(there);
    right.connect(sender.here());
    CHECK(bytes.attach(sender.pair, of_receives) == EINVAL);
    REQUIRE(right.post_receive(1, {right.piece(0, 1000)}) == 0);
    // Two of these requests are unsignaled, but they are counted nevertheless.
    REQUIRE(sender.send(2, {sender.piece(0, 300)}, 0) == 0);
    REQUIRE(sender.write(3, {sender.piece(0, 8)}, there, 0, 0) == 0);
    REQUIRE(sender.read(4, {sender.piece(0, 8)}, there) == 0);
    for (int round = 0; round < 2; ++round) CHECK(sender.wait().status == IBV_WC_SUCCESS);
    CHECK(requests.completed() == 2);
    CHECK(reads.completed() == 1);
    CHECK(bytes.completed() == 300);
    // A flushed request counts as failed.
    REQUIRE(right.post_receive(5, {right.piece(0, 1000)}) == 0);
    REQUIRE(sender.change(IBV_QPS_ERR) == 0);
    REQUIRE(right.change(IBV_QPS_ERR) == 0);
    REQUIRE(sender.send(6, {sender.piece(0, 1)}) == 0);
    for (int round = 0; round < 2; ++round) CHECK(sender.wait().status == IBV_WC_WR_FLUSH_ERR);
    CHECK(requests.failed() == 1);
    CHECK(requests.completed() == 2);
    CHECK(bytes.failed() == 1);
    CHECK(bytes.completed() == 300);
  }
  CHECK(bytes.destroy() == 0);
}
