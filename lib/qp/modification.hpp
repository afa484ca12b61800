// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/error.hpp>
#include <verbspp/qp/transition.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cerrno>

namespace verbspp::detail {

/// The attributes of one `ibv_modify_qp`; the mask follows from what was set.
class modification {
 public:
  modification(queue_pair_state from, queue_pair_state to) noexcept
      : from_(static_cast<ibv_qp_state>(from)) {
    attributes_.qp_state = static_cast<ibv_qp_state>(to);
  }

  template <class Member, class Value>
  modification& set(ibv_qp_attr_mask bit, Member ibv_qp_attr::* member,
                    const Value& value) noexcept {
    attributes_.*member = static_cast<Member>(value);
    mask_ |= bit;
    return *this;
  }

  /// \returns the errno, 0 on success
  [[nodiscard]] int apply(ibv_qp* queue_pair) noexcept {
    if (!modify_is_valid(queue_pair->qp_type, from_, attributes_.qp_state, mask_)) {
      assert(false && "the library set other attributes than the transition takes");
      return EINVAL;
    }
    return errno_of(ibv_modify_qp(queue_pair, &attributes_, mask_));
  }

 private:
  ibv_qp_state from_;
  ibv_qp_attr attributes_{};
  int mask_ = IBV_QP_STATE;
};

}  // namespace verbspp::detail
