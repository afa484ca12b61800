// SPDX-License-Identifier: Apache-2.0

// Parameters of the queue pair builder.

#include <verbspp/qp/builder.hpp>

using namespace verbspp;
using enum queue_pair_state;

// case: adopt_reset_without_access
// expect: the access flags are missing: a queue pair in RESET is still to be prepared
auto adopt(const protection_domain& domain, const completion_queue& queue, ibv_qp* made) {
  return build_queue_pair<transport::rc>()
      .protection_domain(domain)
      .completion_queue(queue)
#ifndef MUST_FAIL
      .access(access::local_write)
#endif
      .from_native<queue_pair_state::reset>(made, ownership::borrowed);
}

// case: adopt_with_sizes
// expect: a queue pair that was made elsewhere has the sizes that it was made with
auto adopt(const protection_domain& domain, const completion_queue& queue, ibv_qp* made) {
  return build_queue_pair<transport::rc>()
      .protection_domain(domain)
      .completion_queue(queue)
#ifdef MUST_FAIL
      .max_send_work_requests(64)
#endif
      .from_native<queue_pair_state::init>(made, ownership::borrowed);
}

// case: build_datagram_without_qkey
// expect: the queue key is missing: call .qkey(...) before .build()
auto build(const protection_domain& domain, const completion_queue& queue) {
  const auto builder =
      build_queue_pair<transport::ud>().protection_domain(domain).completion_queue(queue);
#ifdef MUST_FAIL
  return builder.build();
#else
  return builder.qkey(1).build();
#endif
}

// case: build_without_access
// expect: the access flags are missing: call .access(access::...)
auto build(const protection_domain& pd, const completion_queue& cq) {
  return build_queue_pair<transport::rc>()
      .protection_domain(pd)
      .send_completion_queue(cq)
      .receive_completion_queue(cq)
#ifndef MUST_FAIL
      .access(access::local_write)
#endif
      .build();
}

// case: build_without_protection_domain
// expect: the protection domain is missing: call .protection_domain(pd)
auto build(const protection_domain& pd, const completion_queue& cq) {
  return build_queue_pair<transport::rc>()
#ifndef MUST_FAIL
      .protection_domain(pd)
#endif
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
      .send_completion_queue(cq)
#ifndef MUST_FAIL
      .receive_completion_queue(cq)
#endif
      .access(access::local_write)
      .build();
}

// case: build_without_send_completion_queue
// expect: the send completion queue is missing: call .send_completion_queue(cq)
auto build(const protection_domain& pd, const completion_queue& cq) {
  return build_queue_pair<transport::rc>()
      .protection_domain(pd)
#ifndef MUST_FAIL
      .send_completion_queue(cq)
#endif
      .receive_completion_queue(cq)
      .access(access::local_write)
      .build();
}

// case: completion_queue_given_twice
// expect: this parameter was given already: each parameter of the queue pair builder can be given
// expect: once
// expect: send_completion_queue
// completion_queue() gives both directions; so one of them is given twice.

auto set(const completion_queue& cq, const completion_queue& other) {
  return build_queue_pair<transport::rc>()
      .send_completion_queue(cq)
#ifdef MUST_FAIL
      .completion_queue(other);
#else
      .receive_completion_queue(other);
#endif
}

// case: parameter_given_twice
// expect: this parameter was given already: each parameter of the queue pair builder can be given
// expect: once
// expect: ack_timeout
auto set() {
  using namespace std::chrono_literals;
  return build_queue_pair<transport::rc>()
      .ack_timeout(100ms)
#ifdef MUST_FAIL
      .ack_timeout(200ms)
#endif
      .hop_limit(1);
}

// case: required_parameter_given_twice
// expect: this parameter was given already: each parameter of the queue pair builder can be given
// expect: once
// expect: protection_domain
auto set(const protection_domain& pd) {
  return build_queue_pair<transport::rc>()
#ifdef MUST_FAIL
      .protection_domain(pd)
#endif
      .protection_domain(pd);
}

// case: receive_size_with_shared_receive_queue
// expect: this queue pair takes its receives from a shared receive queue, whose size
// expect: is given at its creation
auto build(const shared_receive_queue& queue) {
  const auto builder = build_queue_pair<transport::rc>().shared_receive_queue(queue);
#ifdef MUST_FAIL
  return builder.max_receive_work_requests(4);
#else
  return builder.max_send_work_requests(4);
#endif
}
