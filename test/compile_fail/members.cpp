// SPDX-License-Identifier: Apache-2.0

// Members of operations that are misspelt, missing, out of order, of the wrong type, or in the
// wrong pair of braces.
// within: 15

#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;
using queue_pair_type = connected_queue_pair<transport::rc>;

// case: members_out_of_order
// expect-gcc: /designator order for field 'verbspp::basic_send_operation<.*>::elements' does not match/
// expect-gcc: declaration order
// expect-clang: requires field designators to be specified in declaration order
// flags-clang: -Werror=reorder-init-list
auto post(queue_pair_type& queue_pair, gather_element part) {
  return queue_pair.post_send(
      {BAD(.solicited = true, .elements = part) GOOD(.elements = part, .solicited = true)});
}

// case: misspelt_member
// expect: {.elements, .immediate, .solicited, .fenced}, in this order
auto post(queue_pair_type& queue_pair, gather_element part) {
  return queue_pair.post_send({BAD(.elemnts) GOOD(.elements) = part}, {.id = 1});
}

// case: unknown_member_of_a_receive
// expect: post_receive takes {.elements}; on a queue pair, a tag {.id} can follow
auto post(queue_pair_type& queue_pair, scatter_element part) {
#if MUST_FAIL == 1
  return queue_pair.post_receive({.element = part}, {.id = 1});
#elif MUST_FAIL == 2
  return queue_pair.post_receive({.elements = part, .id = 1});
#else
  return queue_pair.post_receive({.elements = part}, {.id = 1});
#endif
}

// case: misspelt_members_of_others
// expect: in this order; on a queue pair, a tag {.id
auto post(queue_pair_type& queue_pair, scatter_element part,
          const remote_memory<access::all_remote>& there) {
  const remote_word word = remote_word::at(there).value();
#if MUST_FAIL == 1
  return queue_pair.post_write({.element = part, .remote = word});
#elif MUST_FAIL == 2
  return queue_pair.post_read({.element = part, .remote = word});
#elif MUST_FAIL == 3
  return queue_pair.post_compare_and_swap({.result = part, .remote = word, .expect = 1});
#elif MUST_FAIL == 4
  return queue_pair.post_fetch_and_add({.result = part, .remote = word, .add = 1});
#elif MUST_FAIL == 5
  (void)word;
  return queue_pair.post_send_with_invalidate({.element = part});
#elif MUST_FAIL == 6
  (void)word;
  return queue_pair.post_local_invalidate({.key = 1});
#else
  return queue_pair.post_fetch_and_add({.result = part, .remote = word, .addend = 1});
#endif
}

// case: operation_in_the_tag
// expect: post_send takes {.elements, .immediate, .solicited, .fenced}, in this order; on a queue
// expect: pair, a tag {.id, .signaled} can follow
auto post(queue_pair_type& queue_pair, gather_element part) {
  return queue_pair.post_send(BAD({}, {.elements = part}) GOOD({.elements = part}, {}));
}

// case: required_member_missing
// expect: /(in|set|for) \.(remote|rkey)\b|\.(remote|rkey|result) = /
auto post(queue_pair_type& queue_pair, scatter_element part,
          const remote_memory<access::all_remote>& there, remote_word word) {
  (void)part, (void)there, (void)word;
#if MUST_FAIL == 1
  return queue_pair.post_write({.elements = part});
#elif MUST_FAIL == 2
  return queue_pair.post_read({.elements = part});
#elif MUST_FAIL == 3
  return queue_pair.post_fetch_and_add({.result = part});
#elif MUST_FAIL == 4
  return queue_pair.post_compare_and_swap({.remote = word});
#elif MUST_FAIL == 5
  return queue_pair.post_local_invalidate({});
#elif MUST_FAIL == 6
  return queue_pair.post_send_with_invalidate({.elements = part});
#elif MUST_FAIL == 7
  return write_operation{.elements = part};
#else
  return queue_pair.post_write({.elements = part, .remote = there});
#endif
}

// case: tracking_in_the_operation
// expect: in this order; on a queue pair, a tag {.id, .signaled} can follow
auto post(queue_pair_type& queue_pair, gather_element part) {
#if MUST_FAIL == 1
  return queue_pair.post_send({.elements = part, .id = 1});
#elif MUST_FAIL == 2
  return queue_pair.post_send({.elements = part, .signaled = false});
#else
  return queue_pair.post_send({.elements = part}, {.id = 1, .signaled = false});
#endif
}

// case: immediate_data_of_a_number
// expect: a number does not convert to immediate data implicitly: write immediate_data(number)
auto post(queue_pair_type& queue_pair, unsigned number,
          const remote_memory<access::all_remote>& there) {
  (void)there;
#if MUST_FAIL == 1
  (void)number;
  return queue_pair.post_send({.immediate = 7});
#elif MUST_FAIL == 2
  return queue_pair.post_write({.remote = there, .immediate = number});
#else
  return queue_pair.post_send({.immediate = immediate_data(number)});
#endif
}
