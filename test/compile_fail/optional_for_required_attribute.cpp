// expect: this value is required, so there has to be one: ask whether the optional has it, and
// expect: write *value
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/attributes.hpp>

#include <optional>

using namespace verbspp;
using enum queue_pair_state;

auto attributes(std::optional<port_number> number) {
#ifdef MUST_FAIL
  return attributes_for<transport::rc, reset, init>().port(number);
#else
  return attributes_for<transport::rc, reset, init>().port(*number);
#endif
}
