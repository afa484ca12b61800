// SPDX-License-Identifier: Apache-2.0
/// \file
/// Requests that own or share their memory.
#include "end.hpp"
#include "layout.hpp"
#include "outcome.hpp"

namespace verbspp::soak {

/// Posts a request that owns its memory.
void end::post_owned() {
  doing_ = "posting owned memory";
  work job;
  private_memory memory = take_owned(job.where);
  const std::uint64_t taken = other_.taken.load();
  const bool is_read = !wants_uc_ && once_in(2);
  const unsigned block = static_cast<unsigned>(any(blocks));
  const message_plan plan = plan_of(connection_, which_, sent_);
  if (is_read) {
    job.what = kind::read;
    job.block = block;
    job.size = block_sizes[block];
    job.content = content_[block];
  } else {
    if (sent_ >= taken + credits) return give_owned(std::move(memory), job.where);
    job.what = kind::send;
    job.number = sent_;
    job.content = plan.content;
    job.size = plan.size;
    job.immediate = plan.immediate;
  }
  job.parts = 1;
  job.ranges[0] = {any(job.where.size - job.size + 1), job.size};
  if (is_read)
    ++readers_[block];
  else
    job.where.put(job.elements(), job.content), ++sent_;
  const bool is_whole = job.size == longest;
  optional_immediate_data immediate;
  if (job.immediate) immediate = immediate_data(*job.immediate);
  const auto far =
      must(far_->slice(block_offset(job.block), is_read ? job.size : 0), "name a block");
  const auto use = [&](auto&& owner, auto back) {
    auto posted = is_read ? channel_.post_read(std::move(owner), {.remote = far})
                          : channel_.post_send(std::move(owner), {.immediate = immediate});
    if (!posted.has_value()) {
      note_failure(posted.error(), "posting owned memory");
      check_refused(posted.error(), "posting owned memory");
      undo(job);
      return give_owned(back(std::move(owner)), job.where);
    }
    count_posted(job);
    held one{job, std::move(posted).assume_value(), {}};
    if (once_in(6)) return drop(one);
    held_.push_back(std::move(one));
  };
  if (is_whole) {
    use(std::move(memory), [](private_memory&& same) { return std::move(same); });
  } else {
    auto part = must(std::move(memory).part(job.ranges[0].offset, job.size), "take a part");
    use(std::move(part), [](private_part&& same) { return std::move(same).buffer(); });
  }
}

/// Posts a request that shares its memory. The program may drop its own handles before the request
/// has finished.
void end::post_shared() {
  doing_ = "posting shared memory";
  if (left_alone_.size() > 8) return look_after_shared();
  work job;
  shared_memory memory = must(take_owned(job.where).share(), "share a buffer");
  job.parts = 1;
  const std::uint64_t taken = other_.taken.load();
  const bool is_read = !wants_uc_ && (once_in(2) || sent_ >= taken + credits);
  if (!is_read && sent_ >= taken + credits) return;
  if (is_read) {
    job.what = kind::read;
    job.block = static_cast<unsigned>(any(blocks));
    job.size = block_sizes[job.block];
    job.content = content_[job.block];
    ++readers_[job.block];
  } else {
    const message_plan plan = plan_of(connection_, which_, sent_);
    job.what = kind::send;
    job.number = sent_++;
    job.content = plan.content;
    job.size = plan.size;
    job.immediate = plan.immediate;
  }
  job.ranges[0] = {any(job.where.size - job.size + 1), job.size};
  if (!is_read) job.where.put(job.elements(), job.content);
  optional_immediate_data immediate;
  if (job.immediate) immediate = immediate_data(*job.immediate);
  const auto far =
      must(far_->slice(block_offset(job.block), is_read ? job.size : 0), "name a block");
  auto part = must(memory.part(job.ranges[0].offset, job.size), "take a part");
  auto posted = is_read ? channel_.post_read(std::move(part), {.remote = far})
                        : channel_.post_send(std::move(part), {.immediate = immediate});
  if (!posted.has_value()) {
    note_failure(posted.error(), "posting shared memory");
    check_refused(posted.error(), "posting shared memory");
    return undo(job);
  }
  count_posted(job);
  if (!is_read && once_in(2)) {
    // When this function returns, only the request keeps the memory alive. A use after free would
    // crash, or the peer would receive wrong bytes.
    const kept_pending gone = std::move(posted).assume_value();
    return;
  }
  held one{job, std::move(posted).assume_value(), std::move(memory)};
  if (once_in(2)) return drop(one);
  held_.push_back(std::move(one));
}

}  // namespace verbspp::soak
