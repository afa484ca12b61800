// SPDX-License-Identifier: Apache-2.0
/// \file
/// How requests are chosen, and how their results are checked.
#include "end.hpp"
#include "layout.hpp"

#include <algorithm>
#include <cstring>

namespace verbspp::soak {

void end::split(work& job, std::size_t size) {
  job.size = size;
  job.parts = 1 + any(job.ranges.size());
  std::size_t left = size;
  std::size_t spare = job.where.size - size;
  std::size_t at = 0;
  for (std::size_t i = 0; i < job.parts; ++i) {
    const std::size_t gap = any(std::min<std::size_t>(spare, 40) + 1);
    const std::size_t here = i + 1 == job.parts ? left : any(left + 1);
    at += gap;
    spare -= gap;
    job.ranges[i] = {at, here};
    at += here;
    left -= here;
  }
}

/// Chooses a request, and updates the model as if the request had been posted. \returns false if
/// the chosen request is not possible at present
bool end::choose(work& job, bool may_be_inline) {
  const std::uint64_t taken = other_.taken.load();
  const auto is_free = [&](unsigned block) {
    return readers_[block] == 0 && busy_[block] <= taken;
  };
  // UC supports only sends and writes.
  const std::uint64_t chance = any(wants_uc_ ? 65 : 100);
  if (chance < 40 && sent_ < taken + credits) {
    const message_plan plan = plan_of(connection_, which_, sent_);
    job.number = sent_;
    job.content = plan.content;
    if (chance < 12 && is_free(plan.block)) {
      job.what = kind::write_immediate;
      job.block = plan.block;
      job.size = block_sizes[job.block];
      job.immediate = static_cast<std::uint32_t>(plan.content);
    } else {
      job.what = kind::send;
      job.size = plan.size;
      job.immediate = plan.immediate;
    }
  } else if (chance < 65) {
    job.what = kind::write;
    job.block = static_cast<unsigned>(any(blocks));
    if (!is_free(job.block)) return false;
    job.content = random_();
    job.size = block_sizes[job.block];
  } else if (chance < 85) {
    job.what = kind::read;
    job.block = static_cast<unsigned>(any(blocks));
    job.size = once_in(4) ? block_sizes[job.block] : any(block_sizes[job.block] + 1);
    job.skipped = any(block_sizes[job.block] - job.size + 1);
    job.content = content_[job.block];
  } else {
    job.what = chance < 93 ? kind::add : kind::swap;
    job.size = 8;
  }
  const bool is_source = job.what <= kind::write_immediate;
  job.is_fenced = once_in(10) && !wants_uc_ && (is_source || !is_rxe_);
  if (is_source && may_be_inline && job.size <= inline_limit && once_in(2)) {
    job.is_inline = true;
  } else {
    if (job.where.data == nullptr) {
      job.slot = take_slot();
      job.where = slots_[static_cast<std::size_t>(job.slot)];
    }
    if (job.what >= kind::add) {
      job.ranges[0] = {any(job.where.size / 8) * 8, 8};
      job.parts = 1;
    } else {
      split(job, job.size);
    }
    if (is_source) job.where.put(job.elements(), job.content);
  }
  switch (job.what) {
    case kind::write_immediate:
      job.busy_before = std::exchange(busy_[job.block], sent_ + 1);
      [[fallthrough]];
    case kind::write:
      job.before = std::exchange(content_[job.block], job.content);
      if (job.what == kind::write) break;
      [[fallthrough]];
    case kind::send:
      ++sent_;
      break;
    case kind::read:
      ++readers_[job.block];
      break;
    case kind::add:
      job.number = any(1000);
      job.expected = sum_;
      sum_ += job.number;
      mine_.added_most = sum_;
      break;
    case kind::swap:
      // Half of the swaps compare with a wrong value, so they must not change anything.
      job.expected = swapped_;
      job.number = once_in(2) ? swapped_ : random_();
      job.before = swapped_;
      if (job.number == swapped_) swapped_ = mix(swapped_, connection_);
      break;
  }
  return true;
}

/// Restores the model, because neither this request nor any later one was posted.
void end::undo(work& job) {
  switch (job.what) {
    case kind::write_immediate:
      busy_[job.block] = job.busy_before;
      [[fallthrough]];
    case kind::write:
      content_[job.block] = job.before;
      if (job.what == kind::write) break;
      [[fallthrough]];
    case kind::send:
      sent_ = job.number;
      break;
    case kind::read:
      --readers_[job.block];
      break;
    case kind::add:
      sum_ = job.expected;
      mine_.added_most = sum_;
      break;
    case kind::swap:
      swapped_ = job.before;
      break;
  }
  if (job.slot >= 0) give_slot(std::exchange(job.slot, -1));
}

void end::count_posted(const work& job) {
  static constexpr std::array<const char*, 6> names{
      "sends", "writes", "writes with immediate", "reads", "fetch and adds", "compare and swaps"};
  ++counts_[names[static_cast<std::size_t>(job.what)]];
  ++mine_.operations;
}

/// Checks the memory of a request that has succeeded.
void end::check(const work& job) const {
  if (job.is_inline) return;
  if (job.what >= kind::add) {
    const range found = job.ranges[0];
    std::uint64_t value = 0;
    std::memcpy(&value, job.where.data + found.offset, sizeof(value));
    claim(value == job.expected, "an atomic found " + std::to_string(value) + " instead of " +
                                     std::to_string(job.expected));
    claim(job.where.holds(job.where.tag, 0, {0, found.offset}) &&
              job.where.holds(job.where.tag, found.offset + 8,
                              {found.offset + 8, job.where.size - found.offset - 8}),
          "an atomic wrote outside its result");
    return;
  }
  claim(job.where.is_as_filled(job.elements(), job.content, job.skipped, job.size),
        job.what == kind::read ? "a read returned bytes other than those written"
                               : "the source of a send has changed");
}

/// Updates the model for a request that has finished, and whose memory therefore belongs to the
/// program again.
void end::settle(work& job, bool has_succeeded) {
  if (job.what == kind::read) --readers_[job.block];
  if (has_succeeded) {
    check(job);
    if (job.what == kind::add) {
      added_ += job.number;
      mine_.added = added_;
    }
  }
  if (job.slot >= 0) give_slot(std::exchange(job.slot, -1));
}

void end::settle_all(std::vector<work>& jobs, bool have_succeeded) {
  for (work& each : jobs) settle(each, have_succeeded);
  jobs.clear();
}

}  // namespace verbspp::soak
