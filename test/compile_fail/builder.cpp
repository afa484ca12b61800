// SPDX-License-Identifier: Apache-2.0

// Parameters of the queue pair builder.

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

// case: adopt_reset_without_access
// expect: the access flags are missing: a queue pair in RESET must still be prepared
auto adopt(const protection_domain& domain, const completion_queue& queue, ibv_qp* made) {
  return build_queue_pair<transport::rc>()
      .protection_domain(domain)
      .completion_queue(queue) GOOD(.access(access::local_write))
      .from_native<queue_pair_state::reset>(made, ownership::borrowed);
}

// case: adopt_with_sizes
// expect: a queue pair that was created elsewhere has its sizes
auto adopt(const protection_domain& domain, const completion_queue& queue, ibv_qp* made) {
  return build_queue_pair<transport::rc>()
      .protection_domain(domain)
      .completion_queue(queue) BAD(.max_send_work_requests(64))
      .from_native<queue_pair_state::init>(made, ownership::borrowed);
}

// case: build_datagram_without_qkey
// expect: the queue key is missing: call .qkey(...) on the builder first
auto build(const protection_domain& domain, const completion_queue& queue) {
  const auto builder =
      build_queue_pair<transport::ud>().protection_domain(domain).completion_queue(queue);
  return builder GOOD(.qkey(1)).build();
}

// case: build_without_access
// expect: the access flags are missing: call .access(access::...)
auto build(const protection_domain& pd, const completion_queue& cq) {
  return build_queue_pair<transport::rc>()
      .protection_domain(pd)
      .send_completion_queue(cq)
      .receive_completion_queue(cq) GOOD(.access(access::local_write))
      .build();
}

// case: build_without_protection_domain
// expect: the protection domain is missing: call .protection_domain(pd)
auto build(const protection_domain& pd, const completion_queue& cq) {
  return build_queue_pair<transport::rc>() GOOD(.protection_domain(pd))
      .send_completion_queue(cq)
      .receive_completion_queue(cq)
      .access(access::local_write)
      .build();
}

// case: build_without_receive_completion_queue
// expect: the receive completion queue is missing: call .receive_completion_queue(cq)
auto build(const protection_domain& pd, const completion_queue& cq) {
  return build_queue_pair<transport::rc>()
      .protection_domain(pd)
      .send_completion_queue(cq) GOOD(.receive_completion_queue(cq))
      .access(access::local_write)
      .build();
}

// case: build_without_send_completion_queue
// expect: the send completion queue is missing: call .send_completion_queue(cq)
auto build(const protection_domain& pd, const completion_queue& cq) {
  return build_queue_pair<transport::rc>()
      .protection_domain(pd) GOOD(.send_completion_queue(cq))
      .receive_completion_queue(cq)
      .access(access::local_write)
      .build();
}

// case: completion_queue_given_twice
// expect: this parameter was already given: each parameter of the builder can be given only once
// expect: send_completion_queue
// completion_queue() sets both completion queues, so the send completion queue is set twice here.

auto set(const completion_queue& cq, const completion_queue& other) {
  return build_queue_pair<transport::rc>().send_completion_queue(cq) BAD(.completion_queue(other))
      GOOD(.receive_completion_queue(other));
}

// case: parameter_given_twice
// expect: this parameter was already given: each parameter of the builder can be given only once
// expect: ack_timeout
auto set() {
  using namespace std::chrono_literals;
  return build_queue_pair<transport::rc>().ack_timeout(100ms) BAD(.ack_timeout(200ms)).hop_limit(1);
}

// case: required_parameter_given_twice
// expect: this parameter was already given: each parameter of the builder can be given only once
// expect: protection_domain
auto set(const protection_domain& pd) {
  return build_queue_pair<transport::rc>() BAD(.protection_domain(pd)).protection_domain(pd);
}

// case: receive_size_with_shared_receive_queue
// expect: receives are taken from the shared receive queue: set the sizes when you create that
// expect: queue, not on this builder
auto build(const shared_receive_queue& queue) {
  const auto builder = build_queue_pair<transport::rc>().shared_receive_queue(queue);
  return builder BAD(.max_receive_work_requests(4)) GOOD(.max_send_work_requests(4));
}
