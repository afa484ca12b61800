// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/work/work_error.hpp>

#include <cstdint>

namespace verbspp::detail {

struct receive_slot;

/// The number of serials of scopes; a channel reuses a serial after this number of scopes. A handle
/// kept for that long is taken for one of the newer scope.
inline constexpr std::uint32_t scope_serials = std::uint32_t{1} << 23;

/// The part of a handle that identifies its request. It has two words, which are passed in
/// registers: a value whose address one call takes, however rarely, stays in memory for all calls.
struct request {
  constexpr request() noexcept : number(0) {}

  [[nodiscard]] constexpr bool is_receive() const noexcept {
    return operation == work_operation::receive;
  }

  union {
    std::uint64_t number;  ///< in the send queue, from 1
    receive_slot* slot;    ///< in the receive queue
  };
  std::uint32_t bytes = 0;       ///< the length of an RDMA read
  std::uint32_t scope : 23 = 0;  ///< the serial of its scope; 0: none
  bool keeps : 1 = false;        ///< dropping the handle needs no wait: no memory is borrowed
  work_operation operation : 8 = work_operation::send;
};

static_assert(sizeof(request) == 16 || sizeof(void*) != 8);

}  // namespace verbspp::detail
