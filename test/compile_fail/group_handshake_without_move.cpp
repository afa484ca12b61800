// expect: the handshake consumes the prepared group: write
// within: 25
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/group.hpp>

verbspp::group_result<verbspp::group> connect(verbspp::prepared_group& prepared,
                                              std::span<const verbspp::endpoint> remotes) {
#ifdef MUST_FAIL
  return prepared.handshake(remotes);
#else
  return std::move(prepared).handshake(remotes);
#endif
}
