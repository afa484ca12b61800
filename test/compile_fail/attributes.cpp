// SPDX-License-Identifier: Apache-2.0

// Attributes of transitions.

#include <verbspp/qp/attributes.hpp>
#include <verbspp/qp/builder.hpp>

#include <optional>

using namespace verbspp;
using enum queue_pair_state;

// case: attribute_given_twice
// expect: this attribute was given already: each attribute of a transition can be given once
auto attributes() {
  const auto attributes = attributes_for<transport::rc, init, ready_to_receive>();
#ifdef MUST_FAIL
  return attributes.path_mtu(1024).path_mtu(2048);
#else
  return attributes.path_mtu(2048);
#endif
}

// case: attribute_not_taken
// expect: this transition does not take this attribute: the table in docs/queue_pair_states.md
#ifdef MUST_FAIL
constexpr transport type = transport::uc;
#else
constexpr transport type = transport::rc;
#endif
auto attributes() { return attributes_for<type, init, ready_to_receive>().min_rnr_timer(12); }

// case: attributes_of_another_state
// expect: these attributes are for a transition from another state than the one that this queue
// expect: pair is in
#ifdef MUST_FAIL
constexpr queue_pair_state from = send_queue_drained;
#else
constexpr queue_pair_state from = ready_to_send;
#endif
auto drain(connected_queue_pair<transport::rc>& queue_pair) {
  return queue_pair.modify(attributes_for<transport::rc, from, from>());
}

// case: attributes_of_another_transport
// expect: these attributes are for a queue pair of another transport
#ifdef MUST_FAIL
constexpr transport type = transport::uc;
#else
constexpr transport type = transport::rc;
#endif
auto stay(prepared_queue_pair<transport::rc>& queue_pair) {
  return queue_pair.modify(attributes_for<type, init, init>());
}

// case: modification_with_move
// expect: this modification leaves the queue pair in its state and does not consume it: write
// expect: queue_pair.modify(attributes)
auto forbid_all(connected_queue_pair<transport::rc>& queue_pair) {
  const auto attributes =
      attributes_for<transport::rc, ready_to_send, ready_to_send>().access(access::local_read);
#ifdef MUST_FAIL
  return std::move(queue_pair).modify(attributes);
#else
  return queue_pair.modify(attributes);
#endif
}

// case: modify_without_destination
// expect: the queue pair number of the peer is missing: this transition requires .destination(...)
auto complete() {
  const auto attributes = attributes_for<transport::rc, init, ready_to_receive>()
                              .path(roce_path{})
                              .path_mtu(1024)
                              .receive_psn(0)
                              .max_reads_as_target(1)
                              .min_rnr_timer(12);
#ifdef MUST_FAIL
  return attributes;
#else
  return attributes.destination(2);
#endif
}

auto to_ready_to_receive(prepared_queue_pair<transport::rc> queue_pair) {
  return std::move(queue_pair).modify(complete());
}

// case: modify_without_path
// expect: the path to the peer is missing: this transition requires .path(...)
auto complete() {
  const auto attributes = attributes_for<transport::uc, init, ready_to_receive>()
                              .path_mtu(1024)
                              .receive_psn(0)
                              .destination(2);
#ifdef MUST_FAIL
  return attributes;
#else
  return attributes.path(infiniband_path{});
#endif
}

auto to_ready_to_receive(prepared_queue_pair<transport::uc> queue_pair) {
  return std::move(queue_pair).modify(complete());
}

// case: modify_without_qkey
// expect: the queue key is missing: this transition requires .qkey(...)
auto complete() {
  const auto attributes = attributes_for<transport::ud, reset, init>().port(1).pkey_index(0);
#ifdef MUST_FAIL
  return attributes;
#else
  return attributes.qkey(1);
#endif
}

auto to_init(queue_pair<transport::ud, reset> queue_pair) {
  return std::move(queue_pair).modify(complete());
}

// case: no_such_transition
// expect: a queue pair of this transport has no such transition: the state diagram in
// expect: docs/queue_pair_states.md
#ifdef MUST_FAIL
constexpr queue_pair_state from = init;
#else
constexpr queue_pair_state from = ready_to_receive;
#endif
auto attributes() { return attributes_for<transport::rc, from, ready_to_send>(); }

// case: optional_for_required_attribute
// expect: this value is required, so there has to be one: ask whether the optional has it, and
// expect: write *value
auto attributes(std::optional<port_number> number) {
#ifdef MUST_FAIL
  return attributes_for<transport::rc, reset, init>().port(number);
#else
  return attributes_for<transport::rc, reset, init>().port(*number);
#endif
}

// case: transition_without_move
// expect: a transition to another state consumes the queue pair: write
// expect: std::move(queue_pair).modify(attributes)
auto drain(connected_queue_pair<transport::rc>& queue_pair) {
  const auto attributes = attributes_for<transport::rc, ready_to_send, send_queue_drained>();
#ifdef MUST_FAIL
  return queue_pair.modify(attributes);
#else
  return std::move(queue_pair).modify(attributes);
#endif
}
