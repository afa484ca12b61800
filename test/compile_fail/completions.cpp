// SPDX-License-Identifier: Apache-2.0

// Calls that need a field or a completion channel that the type of completion queue lacks.

#include <verbspp/queue/completion_channel.hpp>
#include <verbspp/queue/completion_queue_with.hpp>

using namespace verbspp;

// case: completion_field_not_asked_for
// expect: this completion lacks a requested field: add the field to the features
constexpr completion_features fields =
    BAD(completion_feature::immediate) GOOD(completion_feature::timestamp);
auto time(const extended_completed_work<fields>& work) { return work.timestamp(); }

// case: poll_each_of_plain_queue
// expect: this type of completion queue cannot be polled field by field
using queue_type = BAD(completion_queue)
    GOOD(extended_completion_queue<completion_feature::timestamp>);
auto poll(const queue_type& queue) {
  return queue.poll_each([](const auto& /*completion*/) {});
}

// case: poll_each_without_fields
// expect: this type of completion queue cannot be polled field by field
using queue_type = BAD(waitable_completion_queue)
    GOOD(completion_queue_with<completion_feature::waitable | completion_feature::timestamp>);
auto poll(const queue_type& queue) {
  return queue.poll_each([](const auto& /*completion*/) {});
}

// case: wait_for_extended_queue_without_channel
// expect: this type of completion queue has no completion channel, so no thread can wait for it
constexpr auto fields = completion_feature::timestamp GOOD(| completion_feature::waitable);
using queue_type = completion_queue_with<fields>;
auto wait(const queue_type& queue) {
  return queue.wait_each([](const auto& /*completion*/) {}, std::chrono::milliseconds(100));
}

// case: wait_without_channel
// expect: this type of completion queue has no completion channel, so no thread can wait for it
using queue_type = BAD(completion_queue) GOOD(waitable_completion_queue);
auto wait(const queue_type& queue, std::span<work_completion> slots) {
  return queue.wait(slots, std::chrono::steady_clock::time_point::max());
}
