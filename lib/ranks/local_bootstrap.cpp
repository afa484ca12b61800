// SPDX-License-Identifier: Apache-2.0
#include "base/wait_notified.hpp"
#include "ranks/values_of_ranks.hpp"
#include <verbspp/ranks/local_bootstrap.hpp>

#include <condition_variable>
#include <mutex>
#include <utility>

namespace verbspp {

namespace detail {

/// The state that the ranks of one world share.
class [[gnu::visibility("hidden")]] local_meeting {
 public:
  explicit local_meeting(std::uint32_t size) : values(size) {}

  std::mutex lock{};
  std::condition_variable arrived{};
  values_of_ranks values;
};

}  // namespace detail

local_bootstrap::local_bootstrap(std::shared_ptr<detail::local_meeting> meeting,
                                 std::uint32_t rank) noexcept
    : meeting_(std::move(meeting)), rank_(rank) {}

std::vector<local_bootstrap> local_bootstrap::create(std::uint32_t size) {
  const auto meeting = std::make_shared<detail::local_meeting>(size);
  std::vector<local_bootstrap> made;
  made.reserve(size);
  for (std::uint32_t rank = 0; rank < size; ++rank) made.push_back(local_bootstrap(meeting, rank));
  return made;
}

std::uint32_t local_bootstrap::size() const noexcept {
  return meeting_ ? meeting_->values.size() : 0;
}

result<void> local_bootstrap::put(std::string_view key, std::span<const std::byte> value) noexcept {
  if (!meeting_) return detail::moved_from_bootstrap("put a value");
  return detail::without_exceptions("put a value", [&]() -> result<void> {
    const std::lock_guard guard(meeting_->lock);
    meeting_->values.put(rank_, key, value);
    return success();
  });
}

group_result<void> local_bootstrap::fence(const wait_limit& limit) noexcept {
  if (!meeting_) return detail::moved_from_bootstrap("fence of a world");
  std::unique_lock guard(meeting_->lock);
  const std::uint32_t fence = meeting_->values.arrive(rank_);
  meeting_->arrived.notify_all();
  const auto is_there = [&]() noexcept { return meeting_->values.all_at(fence); };
  if (!detail::wait_notified(meeting_->arrived, guard, limit, is_there)) {
    const auto missing = meeting_->values.missing_at(fence);
    return group_error(missing.first,
                       limit.failure("fence of a world", "that rank has not reached the fence"),
                       missing.count);
  }
  return success();
}

result<std::size_t> local_bootstrap::get(std::uint32_t rank, std::string_view key,
                                         std::span<std::byte> into,
                                         const wait_limit& /*limit*/) noexcept {
  if (!meeting_) return detail::moved_from_bootstrap("get the value of a rank");
  return detail::without_exceptions("get the value of a rank", [&]() -> result<std::size_t> {
    const std::lock_guard guard(meeting_->lock);
    const auto* const value = meeting_->values.get(rank, key);
    if (value == nullptr)
      return error(error_kind::not_found, "get the value of a rank",
                   "that rank has put no value with this key, or the world has no such rank: a "
                   "rank must put its value before the fence, and others get it after the fence");
    return detail::copy_value(*value, into);
  });
}

}  // namespace verbspp
