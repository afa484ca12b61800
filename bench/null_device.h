// SPDX-License-Identifier: Apache-2.0
// The use of null_device.c, counted by the calls that cost time with real devices, and the delivery
// of messages to its receives.
#pragma once

#include <infiniband/verbs.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct device_counts {
  uint64_t doorbells;    // calls that posted: a write to the device for each
  uint64_t completions;  // that the device has made
  uint64_t locks;        // calls for which a driver takes a lock: to post, and to poll
};

// Since the program began.
struct device_counts device_counts_now(void);

// From now on, receives of the queue pair wait for a message. Returns 0, or an errno value.
int device_hold_receives(struct ibv_qp* qp);
// A message of `length` bytes arrives for the queue pair, and completes the oldest receive: that of
// its shared receive queue, if it has one. Returns 0, ENOENT if no receive waits, or ENOMEM.
int device_deliver(struct ibv_qp* qp, uint32_t length);

#ifdef __cplusplus
}
#endif
