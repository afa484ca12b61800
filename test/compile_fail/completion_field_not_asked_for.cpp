// expect: this completion queue was not created with this field: name it among the
// SPDX-License-Identifier: Apache-2.0

#include <verbspp/queue/completion_queue_with.hpp>

using namespace verbspp;

#ifdef MUST_FAIL
constexpr completion_features fields = completion_feature::immediate;
#else
constexpr completion_features fields = completion_feature::timestamp;
#endif

auto time(const extended_completed_work<fields>& work) { return work.timestamp(); }
