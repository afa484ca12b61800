// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/newer_verbs.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>

namespace softverbs {

/// A public structure of libibverbs, `Plain`, followed by room for the rest of its extended type,
/// `Extended`, which begins with the same members. The whole structure has `Size` bytes.
template <typename Plain, typename Extended, std::size_t Size = sizeof(Extended)>
struct extensible : Plain {
  extensible() noexcept : Plain{} {}
  Extended* extended() noexcept { return reinterpret_cast<Extended*>(static_cast<Plain*>(this)); }

 private:
  alignas(Extended) std::byte rest_[Size - sizeof(Plain)]{};
};

using extensible_cq = extensible<ibv_cq, ibv_cq_ex>;
using extensible_qp = extensible<ibv_qp, ibv_qp_ex,
                                 std::max(sizeof(ibv_qp_ex), newer::qp_functions_offset +
                                                                 sizeof(newer::qp_functions))>;
static_assert(sizeof(extensible_cq) >= sizeof(ibv_cq_ex) &&
              sizeof(extensible_qp) >= sizeof(ibv_qp_ex));
static_assert(offsetof(ibv_cq_ex, comp_mask) == sizeof(ibv_cq) &&
              offsetof(ibv_qp_ex, comp_mask) == sizeof(ibv_qp));

}  // namespace softverbs
