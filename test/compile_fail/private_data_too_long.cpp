// expect: this is more private data than the connection manager carries: 56 bytes with a request
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/cm.hpp>

#include <array>

verbspp::cm_request_data greeting() {
#ifdef MUST_FAIL
  return std::array<char, 57>{};
#else
  return std::array<char, 56>{};
#endif
}
