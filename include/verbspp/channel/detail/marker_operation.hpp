// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting.hpp>

#include <infiniband/verbs.h>

namespace verbspp::detail {

/// A request that does nothing but complete, and so tells that all before it have: a write of no
/// bytes, which needs no memory of the peer's.
struct marker_operation {};

}  // namespace verbspp::detail

namespace verbspp {
template <>
struct operation_traits<detail::marker_operation> : detail::usual_operation {
  static constexpr const char* name = "ibv_post_send (RDMA write of no bytes)";
  static constexpr work_operation completes_as = work_operation::rdma_write;
  [[nodiscard]] static constexpr bool carried_by(transport type) noexcept {
    return type == transport::rc || type == transport::uc;
  }
  [[nodiscard]] static detail::native_elements elements(
      const detail::marker_operation& /*operation*/) noexcept {
    return {};
  }
  [[nodiscard]] static unsigned flags(const detail::marker_operation& /*operation*/) noexcept {
    return 0;
  }
  static void describe(ibv_send_wr& native,
                       const detail::marker_operation& /*operation*/) noexcept {
    native.opcode = IBV_WR_RDMA_WRITE;
    native.wr.rdma.remote_addr = 0;
    native.wr.rdma.rkey = 0;
  }
};
}  // namespace verbspp
