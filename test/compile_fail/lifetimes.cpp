// SPDX-License-Identifier: Apache-2.0

#include <verbspp/memory/memory_region.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <array>

using namespace verbspp;

// case: element_kept_too_long
// expect: does not live long enough
// needs: -Wexperimental-lifetime-safety
// flags: -Xclang -fexperimental-lifetime-safety -Werror=experimental-lifetime-safety
// The newest clang tracks views through functions, and names the lines where the view is created,
// the object is destroyed, and the view is used.

memory_region<> make();

auto post(connected_queue_pair<transport::rc>& queue_pair, const gather_element& other) {
  gather_element element = other;
#if MUST_FAIL == 1
  {
    const memory_region<> region = make();
    element = region.gather_unchecked(0, 8);
  }
  return queue_pair.post_send({.elements = element});
#elif MUST_FAIL == 2
  std::array<std::byte, 4> bytes{};
  inline_payload payload(bytes);
  {
    std::array<std::byte, 4> others{};
    payload = inline_payload(others);
  }
  static_cast<void>(element);
  return queue_pair.post_send({.elements = payload});
#else
  const memory_region<> region = make();
  element = region.gather_unchecked(0, 8);
  return queue_pair.post_send({.elements = element});
#endif
}
