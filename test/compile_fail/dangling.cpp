// SPDX-License-Identifier: Apache-2.0

// Elements and operations that view temporaries.
// only: clang
// flags: -Werror=dangling

#include <verbspp/memory/memory_region.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <vector>

using namespace verbspp;

// case: element_of_temporary_region
// expect: temporary whose address is used as value of local variable
// clang detects that the element outlives its region if the region is a temporary.

memory_region<> make();

std::uint32_t use(const memory_region<>& kept) {
#if !defined(MUST_FAIL)
  const gather_element element = kept.gather_unchecked(0, 8);
  return element.length();
#elif MUST_FAIL == 1
  const gather_element element = make().gather_unchecked(0, 8);
  return element.length() + kept.gather_unchecked(0, 8).length();
#elif MUST_FAIL == 2
  const auto element = make().gather(0, 8);
  return element.has_value() && kept.gather(0, 8).has_value() ? 1 : 0;
#endif
}

// case: operation_that_views_a_temporary
// expect: temporary whose address is used as value of
// clang detects that a stored operation views a temporary whose lifetime ends with the expression.

auto post(connected_queue_pair<transport::rc>& queue_pair, [[maybe_unused]] std::uint64_t value,
          [[maybe_unused]] const gather_element& element) {
#if !defined(MUST_FAIL)
  const send_operation operation{.elements = inline_payload(value),
                                 .fenced = element.length() == 0};
#elif MUST_FAIL == 1
  const send_operation operation{.elements = inline_payload(value + 1)};
#elif MUST_FAIL == 2
  const send_operation operation{.elements = std::vector{element, element}};
#endif
  return queue_pair.post_send(operation);
}
