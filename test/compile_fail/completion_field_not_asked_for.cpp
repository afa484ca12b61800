// expect: this completion queue was not created with this field: name it among the
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/queue/extended_completion_queue.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr completion_fields fields = completion_field::immediate;
#else
constexpr completion_fields fields = completion_field::timestamp;
#endif

auto time(const extended_completed_work<fields>& work) { return work.timestamp(); }
