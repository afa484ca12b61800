// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/work/work_error.hpp>

#include <cstdint>

namespace verbspp::detail {

struct receive_slot;

/// The serials of scopes are counted modulo this. One that has the same as another is so many
/// scopes later; a handle kept as long finds its result where it would be told that it is too late.
inline constexpr std::uint32_t scope_serials = std::uint32_t{1} << 23;

/// What a handle knows of its request. Two words, which calls take in registers: compilers keep
/// what has to be in memory for one call, however rare, there for all.
struct request {
  constexpr request() noexcept : number(0) {}

  [[nodiscard]] constexpr bool is_receive() const noexcept {
    return operation == work_operation::receive;
  }

  union {
    std::uint64_t number;  ///< in the send queue, from 1
    receive_slot* slot;    ///< in the receive queue
  };
  std::uint32_t bytes = 0;       ///< of an RDMA read
  std::uint32_t scope : 23 = 0;  ///< the serial of its scope; 0: none
  bool keeps : 1 = false;        ///< it has none of the program's memory, so nobody has to wait
  work_operation operation : 8 = work_operation::send;
};

static_assert(sizeof(request) == 16 || sizeof(void*) != 8);

}  // namespace verbspp::detail
