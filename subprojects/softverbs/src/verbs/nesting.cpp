// SPDX-License-Identifier: Apache-2.0
#include "verbs/nesting.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace softverbs {
namespace {

int refuse(std::atomic<bool>& explained, const char* explanation) noexcept {
  if (!explained.exchange(true)) std::fprintf(stderr, "softverbs: %s\n", explanation);
  return EBUSY;
}

}  // namespace

int refuse_nested_poll() noexcept {
  static std::atomic<bool> explained{false};
  return refuse(
      explained,
      "a thread polls or resizes a completion queue, or destroys or resets a queue pair or work "
      "queue that uses it, between ibv_start_poll and ibv_end_poll: softverbs returns EBUSY, but "
      "with some drivers the thread would wait forever for a lock that it holds; call ibv_end_poll "
      "first, or continue with ibv_next_poll");
}

int refuse_nested_post() noexcept {
  static std::atomic<bool> explained{false};
  return refuse(
      explained,
      "a thread posts to a queue pair, or calls ibv_wr_start again, between ibv_wr_start and "
      "ibv_wr_complete: softverbs returns EBUSY (after a second ibv_wr_start, from "
      "ibv_wr_complete), but with some drivers the thread would wait forever for a lock that it "
      "holds; call ibv_wr_complete or ibv_wr_abort first, or add the request to the batch");
}

}  // namespace softverbs
