// expect: has to be trivially copyable
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/cm.hpp>

#include <array>
#include <string>

verbspp::cm_request_data greeting() {
#ifdef MUST_FAIL
  return std::string("hello");
#else
  return std::array<char, 6>{"hello"};
#endif
}
