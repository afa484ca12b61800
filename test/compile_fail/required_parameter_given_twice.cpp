// expect: this parameter was given already: each parameter of the queue pair builder can be given
// expect: once
// expect: protection_domain
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/builder.hpp>

auto set(const verbspp::protection_domain& pd) {
  return verbspp::build_queue_pair<verbspp::transport::rc>()
#ifdef MUST_FAIL
      .protection_domain(pd)
#endif
      .protection_domain(pd);
}
