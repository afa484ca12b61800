// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/work/work_error.hpp>

#include <cstdint>

namespace verbspp::detail {

struct receive_slot;

/// The serials of scopes are below this number; 0 stands for no scope. A channel reuses serials, so
/// a handle that is kept while millions of scopes are opened may be mistaken for a handle from a
/// newer scope.
inline constexpr std::uint32_t scope_serials = std::uint32_t{1} << 23;

/// The part of a handle that identifies its request. It has two words, so that it can be passed in
/// registers. Functions that handles call, and that are not inlined, take a request by value: if
/// its address were passed to even one rare call, the compiler would have to keep the request in
/// memory.
struct request {
  constexpr request() noexcept : number(0) {}

  [[nodiscard]] constexpr bool is_receive() const noexcept {
    return operation == work_operation::receive;
  }

  union {
    std::uint64_t number;  ///< the request's number in the send queue, from 1
    receive_slot* slot;    ///< the slot of a receive
  };
  std::uint32_t bytes = 0;       ///< the length of an RDMA read
  std::uint32_t scope : 23 = 0;  ///< the serial of its scope; 0: none
  bool keeps : 1 = false;        ///< no memory is borrowed, so dropping the handle does not wait
  work_operation operation : 8 = work_operation::send;
};

static_assert(sizeof(request) == 16 || sizeof(void*) != 8);

}  // namespace verbspp::detail
