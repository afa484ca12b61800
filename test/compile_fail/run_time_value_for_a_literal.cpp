// expect: /constant expression/
// expect: retry_count
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/qp/parameters.hpp>

verbspp::result<verbspp::retry_count> retries(int count) {
#ifdef MUST_FAIL
  return verbspp::retry_count(count);
#else
  return verbspp::retry_count::from(count);
#endif
}
