// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace verbspp::test {

namespace {

std::atomic<int> release_failures{0};

void count_release_failure(const error& cause) noexcept {
  std::fprintf(stderr, "an object could not be released: %s\n", cause.message().c_str());
  ++release_failures;
}

}  // namespace

std::string device_name() {
  const char* chosen = std::getenv("VERBSPP_TEST_DEVICE");
  return chosen != nullptr ? chosen : "soft0";
}

std::uint32_t repetitions(std::uint32_t on_softverbs) {
  return device_name().starts_with("soft") ? on_softverbs : on_softverbs / 5;
}

std::vector<work_completion> take(const completion_queue& queue, std::size_t count, int line,
                                  const char* file) {
  std::vector<work_completion> taken(count);
  std::size_t got = 0;
  const auto deadline = clock::now() + patience;
  while (got < count) {
    got += must(queue.poll(std::span(taken).subspan(got)), line, file).size();
    if (got == count) break;
    if (clock::now() > deadline)
      throw failure(file, line,
                    "only " + std::to_string(got) + " of " + std::to_string(count) +
                        " completions arrived in time");
    std::this_thread::yield();
  }
  return taken;
}

work_completion take_one(const completion_queue& queue, int line, const char* file) {
  return take(queue, 1, line, file).front();
}

completed_work take_success(const completion_queue& queue, std::uint64_t id, int line,
                            const char* file) {
  const work_completion completion = take_one(queue, line, file);
  const completed_work work = must(completion.get(), line, file);
  if (completion.wr_id() != id)
    throw failure(file, line,
                  "the completion belongs to request " + std::to_string(completion.wr_id()) +
                      ", not to request " + std::to_string(id));
  return work;
}

std::size_t count_within_a_moment(const completion_queue& queue) {
  std::array<work_completion, 16> slots;
  std::size_t count = 0;
  for (const auto deadline = clock::now() + moment; clock::now() < deadline;)
    count += must(queue.poll(slots)).size();
  return count;
}

work_status status_of(const work_completion& completion) {
  const auto work = completion.get();
  return work.has_value() ? work_status::success : work.error().status();
}

std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = seed * 2654435761U + 1;
  std::generate(bytes.begin(), bytes.end(), [&] {
    state = state * 1664525U + 1013904223U;
    return static_cast<std::byte>(state >> 24);
  });
  return bytes;
}

release_watch::release_watch() : before_(set_destroy_failure_handler(&count_release_failure)) {
  release_failures = 0;
}

release_watch::~release_watch() {
  set_destroy_failure_handler(before_);
  CHECK(failures() == 0);
}

int release_watch::failures() const { return release_failures; }

testbed::testbed(std::size_t completions)
    : context(must(open_device(device_name()))),
      domain(must(protection_domain::allocate(context))),
      left_queue(must(completion_queue::create(context, completions))),
      right_queue(must(completion_queue::create(context, completions))),
      limits(must(context.query_device())),
      port(must(context.first_active_port())) {}

connected_pair connect(prepared left, prepared right, int line, const char* file) {
  const endpoint left_end = left.endpoint();
  const endpoint right_end = right.endpoint();
  connected left_connected = must(std::move(left).handshake(right_end), line, file);
  return {std::move(left_connected), must(std::move(right).handshake(left_end), line, file)};
}

connected_pair connect(const testbed& bed, int line, const char* file) {
  prepared left = must(bed.left().build(), line, file);
  return connect(std::move(left), must(bed.right().build(), line, file), line, file);
}

std::vector<std::size_t> telling_sizes(const testbed& bed) {
  const std::size_t mtu = bed.port.active_mtu().bytes();
  return {0, 1, mtu - 1, mtu, mtu + 1, std::size_t{1} << 20};
}

queried query(ibv_qp* queue_pair) {
  queried answer;
  constexpr int everything = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS |
                             IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_AV | IBV_QP_PATH_MTU |
                             IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_CAP | IBV_QP_DEST_QPN;
  REQUIRE(ibv_query_qp(queue_pair, &answer.attributes, everything, &answer.initial) == 0);
  return answer;
}

void move_to_error(ibv_qp* queue_pair) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(queue_pair, &attributes, IBV_QP_STATE) == 0);
}

void start_draining(const connected& queue_pair) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = 1;
  REQUIRE(ibv_modify_qp(queue_pair.native_handle(), &attributes,
                        IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
}

void wait_for_error_state(const connected& queue_pair, int line, const char* file) {
  wait_until([&] { return must(queue_pair.query_state()) == queue_pair_state::error; },
             "the queue pair to move to ERR", patience, line, file);
}

}  // namespace verbspp::test
