// SPDX-License-Identifier: Apache-2.0

// The library's own code for posting, polling and reading completions does not allocate, lock or
// throw. The functions below are declared non-blocking, so newer versions of clang check this with
// -Wfunction-effects. Assertions are disabled because they may print.

#include <verbspp/verbspp.hpp>

#include <array>
#include <cstdint>

namespace {

using namespace verbspp;
using connected = connected_queue_pair<transport::rc>;

constexpr access_flags everything = access::all_remote;

[[maybe_unused]] bool post(connected& queue_pair, const gather_element& from,
                           const scatter_element& into, const remote_memory<everything>& remote,
                           const remote_word& word) noexcept VERBSPP_NONBLOCKING {
  const bool sent =
      queue_pair.post_receive({.elements = into}, {.id = 1}).has_value() &&
      queue_pair.post_send({.elements = from, .immediate = immediate_data(7)}, {.id = 2})
          .has_value() &&
      queue_pair.post_write({.elements = from, .remote = remote}, {.id = 3}).has_value() &&
      queue_pair.post_read({.elements = into, .remote = remote}, {.id = 4}).has_value();
  return sent &&
         queue_pair.post_compare_and_swap({.result = into, .remote = word}, {.id = 5})
             .has_value() &&
         queue_pair.post_fetch_and_add({.result = into, .remote = word}, {.id = 6}).has_value();
}

[[maybe_unused]] bool poll(const completion_queue& queue,
                           std::uint64_t& bytes) noexcept VERBSPP_NONBLOCKING {
  std::array<work_completion, 16> slots;
  const auto arrived = queue.poll(slots);
  if (!arrived.has_value()) return false;
  for (const work_completion& completion : arrived.assume_value()) {
    const auto work = completion.get();
    if (!work.has_value()) return false;
    bytes += work.assume_value().byte_count().value_or(0) + completion.wr_id();
  }
  return true;
}

}  // namespace
