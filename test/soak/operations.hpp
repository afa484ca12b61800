// SPDX-License-Identifier: Apache-2.0
/// \file
/// Converts the soak's requests to the operations that the library posts.
#pragma once

#include "end.hpp"
#include "layout.hpp"
#include "outcome.hpp"

#include <algorithm>
#include <vector>

namespace verbspp::soak {

// Posts an operation with the function that accepts its type.
template <class Poster>
auto post(Poster& to, const send_operation& what) {
  return to.post_send(what);
}
template <class Poster>
auto post(Poster& to, const write_operation& what) {
  return to.post_write(what);
}
template <class Poster>
auto post(Poster& to, const read_operation& what) {
  return to.post_read(what);
}
template <class Poster>
auto post(Poster& to, const fetch_and_add_operation& what) {
  return to.post_fetch_and_add(what);
}
template <class Poster>
auto post(Poster& to, const compare_and_swap_operation& what) {
  return to.post_compare_and_swap(what);
}
using outcome_of_work = transport_result<completed_work>;
[[nodiscard]] inline outcome_of_work call(channel& to, const send_operation& what,
                                          const wait_limit& limit) {
  return to.send(what, limit);
}
[[nodiscard]] inline outcome_of_work call(channel& to, const write_operation& what,
                                          const wait_limit& limit) {
  return to.write(what, limit);
}
[[nodiscard]] inline outcome_of_work call(channel& to, const read_operation& what,
                                          const wait_limit& limit) {
  return to.read(what, limit);
}
[[nodiscard]] inline outcome_of_work call(channel& to, const fetch_and_add_operation& what,
                                          const wait_limit& limit) {
  return to.fetch_and_add(what, limit);
}
[[nodiscard]] inline outcome_of_work call(channel& to, const compare_and_swap_operation& what,
                                          const wait_limit& limit) {
  return to.compare_and_swap(what, limit);
}

template <class Use>
auto end::with_operation(const work& job, Use use) {
  std::vector<gather_element> sources;
  std::vector<scatter_element> targets;
  const auto offset = [&](std::size_t i) {
    return static_cast<std::size_t>(job.where.data - arena_.data()) + job.ranges[i].offset;
  };
  const std::span<const std::byte> bytes = bytes_of(job.content, 0, job.size);
  if (job.what <= kind::write_immediate) {
    for (std::size_t i = 0; i < job.parts; ++i)
      sources.push_back(
          must(arena_.gather(offset(i), job.ranges[i].size), "name the source of a send"));
  } else {
    for (std::size_t i = 0; i < job.parts; ++i)
      targets.push_back(must(arena_.scatter(offset(i), job.ranges[i].size), "name a target"));
  }
  const std::span<const gather_element> all(sources);
  const inline_payload copied(bytes.first(std::min<std::size_t>(job.size, inline_limit)));
  gather_list gathered = all;
  if (job.is_inline)
    gathered = copied;
  else if (sources.size() == 1)
    gathered = sources[0];
  optional_immediate_data immediate;
  if (job.immediate) immediate = immediate_data(*job.immediate);
  const auto far = [&] {
    return must(far_->slice(block_offset(job.block) + job.skipped, job.size), "name a block");
  };
  switch (job.what) {
    case kind::send:
      return use(
          send_operation{.elements = gathered, .immediate = immediate, .fenced = job.is_fenced});
    case kind::write:
    case kind::write_immediate:
      return use(write_operation{
          .elements = gathered, .remote = far(), .immediate = immediate, .fenced = job.is_fenced});
    case kind::read:
      return use(read_operation{.elements = std::span<const scatter_element>(targets),
                                .remote = far(),
                                .fenced = job.is_fenced});
    case kind::add:
      return use(fetch_and_add_operation{
          .result = targets[0],
          .remote = must(remote_word::at(*far_, 0), "name the word to add to"),
          .addend = job.number,
          .fenced = job.is_fenced});
    case kind::swap:
      break;
  }
  return use(
      compare_and_swap_operation{.result = targets[0],
                                 .remote = must(remote_word::at(*far_, 8), "name the word to swap"),
                                 .expected = job.number,
                                 .desired = mix(job.before, connection_),
                                 .fenced = job.is_fenced});
}

}  // namespace verbspp::soak
