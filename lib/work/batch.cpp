// SPDX-License-Identifier: Apache-2.0
#include <verbspp/work/batch.hpp>
#include <verbspp/work/capacities.hpp>

#include <cstddef>
#include <cstdint>

namespace verbspp {

batch_error detail::extended_post_failure(int returned, std::uint32_t longest_inline,
                                          std::size_t most_elements,
                                          const queue_pair_capacities& granted) noexcept {
  constexpr const char* operation = "ibv_wr_complete";
  if (longest_inline > granted.max_inline_data)
    return {inline_too_long(operation, longest_inline, granted.max_inline_data), 0};
  return {post_failure(returned, operation, most_elements, granted.max_send_elements), 0};
}

error detail::batch_too_long(const char* what, std::size_t count, std::size_t limit) noexcept {
  return error::above_limit("fill batch", what, count, limit,
                            "give the batch larger template arguments");
}

}  // namespace verbspp
