// SPDX-License-Identifier: Apache-2.0

// The elements and the remote memory that operations accept.

#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

// case: atomic_on_remote_memory
// expect: an atomic operation works on one word of remote memory: write .remote = remote_word::at(memory, offset).value()
// within: 15
auto post(queue_pair_type& queue_pair, scatter_element part,
          const remote_memory<access::all_remote>& there) {
#if MUST_FAIL == 1
  return queue_pair.post_fetch_and_add({.result = part, .remote = there});
#elif MUST_FAIL == 2
  return queue_pair.post_compare_and_swap({.result = part, .remote = there});
#else
  return queue_pair.post_fetch_and_add({.result = part, .remote = remote_word::at(there).value()});
#endif
}

// case: atomic_result_without_value
// expect: this is a result or an optional, which may hold no value: get the value with .value() or, from a result, with VERBSPP_TRY
// within: 15
auto post(queue_pair_type& queue_pair,
          const memory_region<access::local_write | access::all_remote>& memory, remote_word word) {
  return queue_pair.post_fetch_and_add(
      {.result = memory.scatter(0, 8) GOOD(.value()), .remote = word});
}

// case: elements_of_the_other_kind
// expect: this is the wrong kind of list: sending from memory needs a gather_list, and
// expect: filling memory needs a scatter_list
// within: 15
auto post(queue_pair_type& queue_pair, const gather_list& sent, const scatter_list& filled) {
  (void)sent, (void)filled;
#if MUST_FAIL == 1
  return queue_pair.post_receive({.elements = sent});
#elif MUST_FAIL == 2
  return queue_pair.post_send({.elements = filled});
#else
  return queue_pair.post_send({.elements = sent});
#endif
}

// case: elements_without_value
// expect: this is a result or an optional, which may hold no value: get the value with .value() or, from a result, with VERBSPP_TRY
// within: 15
using region = memory_region<access::local_write | access::all_remote>;

auto post(queue_pair_type& queue_pair, const region& memory,
          const remote_memory<access::all_remote>& there) {
#if MUST_FAIL == 1
  return queue_pair.post_send({.elements = memory.gather()}, {.id = 1});
#elif MUST_FAIL == 2
  return queue_pair.post_write({.elements = memory.gather(), .remote = there}, {.id = 1});
#elif MUST_FAIL == 3
  return queue_pair.post_receive({.elements = memory.scatter(0, 8)}, {.id = 1});
#elif MUST_FAIL == 4
  (void)there;
  return send_operation{.elements = memory.gather()};
#else
  return queue_pair.post_write({.elements = memory.gather().value(), .remote = there}, {.id = 1});
#endif
}

// case: gather_element_to_be_written
// expect: gather elements and inline payloads are read-only: the device needs an element that it
// expect: may write, from scatter() of a region or buffer
// within: 15
auto post(queue_pair_type& queue_pair, gather_element part, scatter_element result,
          const remote_memory<access::all_remote>& there, remote_word word) {
  (void)part, (void)result, (void)there, (void)word;
#if MUST_FAIL == 1
  return queue_pair.post_receive({.elements = part});
#elif MUST_FAIL == 2
  return queue_pair.post_read({.elements = part, .remote = there});
#elif MUST_FAIL == 3
  return queue_pair.post_fetch_and_add({.result = part, .remote = word});
#else
  return queue_pair.post_fetch_and_add({.result = result, .remote = word});
#endif
}

// case: memory_for_atomic_result
// expect: this is not an element of registered memory: write region.scatter(offset, length).value()
// within: 15
auto post(queue_pair_type& queue_pair,
          const memory_region<access::local_write | access::all_remote>& memory, remote_word word) {
  return queue_pair.post_fetch_and_add(
      {.result = memory GOOD(.scatter(0, 8).value()), .remote = word});
}

// case: memory_for_elements
// expect: this is not an element of registered memory: write region.gather().value() for memory that is sent,
// expect: or region.scatter().value() for memory that is filled
// within: 15
auto post(queue_pair_type& queue_pair, const memory_region<access::local_write>& region,
          const registered_buffer<access::local_write>& buffer, const std::string& text,
          std::span<std::byte> bytes) {
  (void)buffer, (void)text, (void)bytes;
#if MUST_FAIL == 1
  return queue_pair.post_send({.elements = region});
#elif MUST_FAIL == 2
  return queue_pair.post_send({.elements = buffer});
#elif MUST_FAIL == 3
  return queue_pair.post_send({.elements = text});
#elif MUST_FAIL == 4
  return queue_pair.post_send({.elements = bytes});
#elif MUST_FAIL == 5
  return queue_pair.post_receive({.elements = bytes});
#else
  return queue_pair.post_send({.elements = region.gather().value()});
#endif
}

// case: remote_without_value
// expect: this is a result or an optional, which may hold no value: get the value with .value() or, from a result, with VERBSPP_TRY
// within: 15
auto post(queue_pair_type& queue_pair, scatter_element part,
          const remote_memory<access::all_remote>& there) {
#if MUST_FAIL == 1
  return queue_pair.post_write({.elements = part, .remote = there.slice(0, 8)}, {.id = 1});
#elif MUST_FAIL == 2
  return queue_pair.post_read({.elements = part, .remote = there.slice(0, 8)}, {.id = 1});
#elif MUST_FAIL == 3
  return queue_pair.post_fetch_and_add({.result = part, .remote = remote_word::at(there)});
#else
  return queue_pair.post_read({.elements = part, .remote = there.slice(0, 8).value()}, {.id = 1});
#endif
}

// case: receive_into_gather_element
// expect: gather elements and inline payloads are read-only: the device needs an element that it
// expect: may write, from scatter() of a region or buffer
using element = BAD(gather_element) GOOD(scatter_element);
auto receive(connected_queue_pair<transport::rc>& queue_pair, element part) {
  return queue_pair.post_receive({.elements = part}, {.id = 1});
}

// case: inline_NAME
// expect: an inline payload consists of the bytes of one trivially copyable object, of text, or of
// expect: a span of std::byte, but not of a pointer, a view or an array
// within: 15
// columns: NAME | BEYOND
// row: span | numbers
// row: sized_span | numbers.first<2>()
// row: wide_text | std::wstring_view(L"words")
// row: wide_literal | L"words"
// row: initializer_list | (std::initializer_list<int>{1, 2})
// row: reference | std::ref(object)
// row: nothing | nullptr
// row: pointer | &object
// row: array_of_pointers | (std::array<const int*, 1>{&object})
// row: iterator | numbers.begin()
// row: vector | (std::vector<int>{1, 2})
// row: element | gather_element::from_native({})
auto post(queue_pair_type& queue_pair, int& object, std::span<const int> numbers) {
  const auto bytes = std::as_bytes(numbers);
  (void)object, (void)bytes;
  GOOD(return queue_pair.post_send({.elements = inline_payload(bytes)});)
  BAD(return queue_pair.post_send({.elements = inline_payload(BEYOND)});)
}

// case: inline_result
// expect: this is a result or an optional, which may hold no value: get the value with .value() or, from a result, with VERBSPP_TRY
// within: 15
auto post(queue_pair_type& queue_pair, const result<std::uint64_t>& number) {
  return queue_pair.post_send({.elements = inline_payload(number GOOD(.assume_value()))});
}
