// SPDX-License-Identifier: Apache-2.0
#include <verbspp/cm/private_data.hpp>

namespace verbspp::detail {

error private_data_too_long(std::size_t size, std::size_t most) noexcept {
  return error::above_limit("private data", "bytes of private data", size, most,
                            "the connection manager's message carries no more: send less, or, if a "
                            "connection follows, send the rest over it");
}

error private_data_too_short(std::size_t size, std::size_t wanted) noexcept {
  return error::mismatch(
      "private data", "size of the value in bytes", static_cast<std::int64_t>(wanted),
      static_cast<std::int64_t>(size),
      "the peer sent a value of another type, or none: use the same type at both ends");
}

}  // namespace verbspp::detail
