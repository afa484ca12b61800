// SPDX-License-Identifier: Apache-2.0
#include <verbspp/pool/message_pool.hpp>

#include <ostream>

namespace verbspp {

error message_pool::has_none() const noexcept {
  if (places_ == nullptr)
    return {error_kind::invalid_input, "message_pool::take", "this pool was moved from"};
  return {
      error_kind::would_block, "message_pool::take",
      "all places are in use, by messages, by requests, or by the receives that a hub, a group "
      "or an inbox keeps posted: drop messages, wait for requests to finish, or create the pool "
      "with more places"};
}

std::ostream& operator<<(std::ostream& out, const message_pool& pool) {
  return out << "message pool, " << pool.size() << (pool.size() == 1 ? " place of " : " places of ")
             << pool.message_size() << (pool.message_size() == 1 ? " byte, " : " bytes, ")
             << pool.available() << " available";
}

}  // namespace verbspp
