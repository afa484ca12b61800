// SPDX-License-Identifier: Apache-2.0

// Attributes of transitions.

#include <verbspp/qp/attributes.hpp>
#include <verbspp/qp/builder.hpp>

#include <optional>

using namespace verbspp;
using enum queue_pair_state;

// case: attribute_given_twice
// expect: this attribute was already given: each attribute of a transition can be given only once
auto attributes() {
  const auto attributes = attributes_for<transport::rc, init, ready_to_receive>();
  return attributes BAD(.path_mtu(1024)).path_mtu(2048);
}

// case: attribute_not_taken
// expect: this transition does not accept this attribute: see the table in
// expect: docs/queue_pair_states.md
constexpr transport type = BAD(transport::uc) GOOD(transport::rc);
auto attributes() { return attributes_for<type, init, ready_to_receive>().min_rnr_timer(12); }

// case: attributes_of_another_state
// expect: these attributes are for a transition from a state that this queue pair is not in
constexpr queue_pair_state from = BAD(send_queue_drained) GOOD(ready_to_send);
auto drain(connected_queue_pair<transport::rc>& queue_pair) {
  return queue_pair.modify(attributes_for<transport::rc, from, from>());
}

// case: attributes_of_another_transport
// expect: these attributes are for a queue pair of another transport
constexpr transport type = BAD(transport::uc) GOOD(transport::rc);
auto stay(prepared_queue_pair<transport::rc>& queue_pair) {
  return queue_pair.modify(attributes_for<type, init, init>());
}

// case: modification_with_move
// expect: this modification leaves the queue pair in its state and does not consume it: write
// expect: queue_pair.modify(attributes), or modify_native(attributes, mask), without std::move
auto forbid_all(connected_queue_pair<transport::rc>& queue_pair) {
  const auto attributes =
      attributes_for<transport::rc, ready_to_send, ready_to_send>().access(access::local_read);
  return BAD(std::move(queue_pair)) GOOD(queue_pair).modify(attributes);
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
  return attributes GOOD(.destination(2));
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
  return attributes GOOD(.path(infiniband_path{}));
}

auto to_ready_to_receive(prepared_queue_pair<transport::uc> queue_pair) {
  return std::move(queue_pair).modify(complete());
}

// case: modify_without_qkey
// expect: the queue key is missing: this transition requires .qkey(...)
auto complete() {
  const auto attributes = attributes_for<transport::ud, reset, init>().port(1).pkey_index(0);
  return attributes GOOD(.qkey(1));
}

auto to_init(queue_pair<transport::ud, reset> queue_pair) {
  return std::move(queue_pair).modify(complete());
}

// case: no_such_transition
// expect: a queue pair of this transport has no such transition: see the state diagram in
// expect: docs/queue_pair_states.md
constexpr queue_pair_state from = BAD(init) GOOD(ready_to_receive);
auto attributes() { return attributes_for<transport::rc, from, ready_to_send>(); }

// case: optional_for_required_attribute
// expect: this value is required, so an optional, which may be empty, is not accepted: test it
// expect: first, and pass *value
auto attributes(std::optional<port_number> number) {
  return attributes_for<transport::rc, reset, init>().port(GOOD(*) number);
}

// case: transition_without_move
// expect: a transition to another state consumes the queue pair: write
// expect: std::move(queue_pair).modify(attributes)
auto drain(connected_queue_pair<transport::rc>& queue_pair) {
  const auto attributes = attributes_for<transport::rc, ready_to_send, send_queue_drained>();
  return BAD(queue_pair) GOOD(std::move(queue_pair)).modify(attributes);
}
