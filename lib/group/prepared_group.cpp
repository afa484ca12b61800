// SPDX-License-Identifier: Apache-2.0
#include <verbspp/group/prepared_group.hpp>

namespace verbspp {

group_result<group> prepared_group::handshake(
    std::span<const struct endpoint> remotes) && noexcept {
  group made = std::move(group_);
  VERBSPP_TRYV(made.handshake(remotes));
  return made;
}

}  // namespace verbspp
