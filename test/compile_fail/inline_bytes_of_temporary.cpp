// expect: temporary whose address is used as value of
// only: clang
// variants: 2
// flags: -Werror=dangling
// SPDX-License-Identifier: Apache-2.0

// Only clang sees that a stored operation views inline bytes which end with the expression.

#include <verbspp/qp/queue_pair.hpp>

#include <vector>

using namespace verbspp;

auto post(connected_queue_pair<transport::rc>& queue_pair, [[maybe_unused]] std::uint64_t value,
          [[maybe_unused]] const gather_element& element) {
#if !defined(MUST_FAIL)
  const send_operation operation{.elements = inline_payload(value),
                                 .fenced = element.length() == 0};
#elif MUST_FAIL == 1
  const send_operation operation{.elements = inline_payload(value + 1)};
#else
  const send_operation operation{.elements = std::vector{element, element}};
#endif
  return queue_pair.post_send(operation);
}
