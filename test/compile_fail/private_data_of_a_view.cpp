// expect: a pointer or view means nothing to the peer
// variants: 3
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/cm.hpp>

#include <span>
#include <string_view>

verbspp::cm_request_data greeting(std::string_view text,
                                  [[maybe_unused]] std::span<const char> characters) {
#if MUST_FAIL == 1
  return text;
#elif MUST_FAIL == 2
  return characters;
#elif MUST_FAIL == 3
  return text.data();
#else
  return verbspp::cm_request_data::from(std::as_bytes(std::span(text))).value();
#endif
}
