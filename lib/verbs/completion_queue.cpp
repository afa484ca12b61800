// SPDX-License-Identifier: Apache-2.0
#include <verbspp/verbs/completion_queue.hpp>

#include <cerrno>
#include <new>

namespace verbspp {

namespace {
constexpr const char* operation = "ibv_create_cq";
}

detail::completion_queue_state::~completion_queue_state() {
  report_destroy(errno_of(ibv_destroy_cq(native)), "ibv_destroy_cq");
}

error detail::poll_failure() noexcept {
  return {error_kind::driver, "ibv_poll_cq",
          "the completion queue is broken, usually because it overran: give it room for all work "
          "that can be outstanding on its queue pairs"};
}

result<completion_queue> completion_queue::create(const class context& parent,
                                                  std::size_t capacity) noexcept {
  if (capacity == 0)
    return error::out_of_range(operation, "capacity, completions", 0, "the smallest queue holds 1");
  VERBSPP_TRY(device, parent.query_device());
  const auto limit = static_cast<std::size_t>(std::max(device.max_cqe, 0));
  if (capacity > limit)
    return error::above_limit(operation, "capacity, completions", capacity, limit,
                              "the limit is the device's (max_cqe)");
  errno = 0;
  ibv_cq* const created =
      ibv_create_cq(parent.native_handle(), static_cast<int>(capacity), nullptr, nullptr, 0);
  if (created == nullptr) return error::from_errno(errno, operation);
  auto* const state = new (std::nothrow) detail::completion_queue_state(parent, created);
  if (state == nullptr) {
    ibv_destroy_cq(created);
    return error::from_errno(ENOMEM, operation);
  }
  return completion_queue(detail::reference<detail::completion_queue_state>(state));
}

}  // namespace verbspp
