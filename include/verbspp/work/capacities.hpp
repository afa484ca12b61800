// SPDX-License-Identifier: Apache-2.0
/// \file
/// How much a queue holds: what is asked for, and what a device grants.
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
  static constexpr const char* name = "inline data, bytes (0..2^31-1)";
};
}  // namespace detail

/// The length of a send or receive queue.
using work_request_count = bounded<detail::work_request_count_traits>;
/// The elements that one work request may have.
using element_count = bounded<detail::element_count_traits>;
/// The payload that a request may carry in itself, in bytes.
using inline_size = bounded<detail::inline_size_traits>;

/// What the device granted to a queue pair; at least what was asked for.
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
