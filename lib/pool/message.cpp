// SPDX-License-Identifier: Apache-2.0
#include <verbspp/pool/message.hpp>

namespace verbspp {

error message::too_long(std::size_t size, std::uint32_t capacity) noexcept {
  return error::above_limit("message::resize", "bytes", size, capacity,
                            "create the pool with larger places");
}

error message::has_no_place(const char* operation) noexcept {
  return {
      error_kind::invalid_input, operation,
      "this message is empty: it was passed to a request, moved from, or never taken from a pool"};
}

}  // namespace verbspp
