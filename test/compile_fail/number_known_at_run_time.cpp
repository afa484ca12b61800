// expect: a value that is known only at run time has to be checked: write ::from(value)
// within: 15
// variants: 6
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/device/port.hpp>
#include <verbspp/qp/builder.hpp>

using namespace verbspp;

auto setting(unsigned number) {
#if MUST_FAIL == 1
  return build_queue_pair<transport::rc>().max_send_work_requests(number);
#elif MUST_FAIL == 2
  return build_queue_pair<transport::rc>().ack_timeout(number);
#elif MUST_FAIL == 3
  return retry_count(number);
#elif MUST_FAIL == 4
  return rnr_retry_count(number);
#elif MUST_FAIL == 5
  return min_rnr_timer(number);
#elif MUST_FAIL == 6
  return path_mtu(number);
#else
  return build_queue_pair<transport::rc>().max_send_work_requests(
      work_request_count::from(number).value());
#endif
}
