// SPDX-License-Identifier: Apache-2.0
/// \file
/// The capacities of queues: the requested capacities, and the capacities that a device has
/// granted.
#pragma once

#include <verbspp/base/bounded.hpp>

#include <cstdint>

namespace verbspp {

namespace detail {
struct work_request_count_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 0, maximum = 0x7fffffff;
  static constexpr const char* name = "work requests (0..2^31-1)";
};
struct element_count_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 0, maximum = 0x7fffffff;
  static constexpr const char* name = "scatter-gather elements (0..2^31-1)";
};
struct inline_size_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 0, maximum = 0x7fffffff;
  static constexpr const char* name = "bytes of inline data (0..2^31-1)";
};
}  // namespace detail

/// The number of requests that a send or receive queue can hold.
using work_request_count = bounded<detail::work_request_count_traits>;
/// The number of elements that one work request may have.
using element_count = bounded<detail::element_count_traits>;
/// The number of payload bytes that a request may carry inline.
using inline_size = bounded<detail::inline_size_traits>;

/// The capacities that a queue pair was granted. They are at least as large as the requested
/// capacities.
struct queue_pair_capacities {
  std::uint32_t max_send_work_requests = 0;
  std::uint32_t max_receive_work_requests = 0;
  std::uint32_t max_send_elements = 0;     ///< scatter-gather elements per request
  std::uint32_t max_receive_elements = 0;  ///< scatter-gather elements per request
  std::uint32_t max_inline_data = 0;       ///< bytes

  friend bool operator==(const queue_pair_capacities&,
                         const queue_pair_capacities&) noexcept = default;
};

}  // namespace verbspp
