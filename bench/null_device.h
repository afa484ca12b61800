// SPDX-License-Identifier: Apache-2.0
// The use of null_device.c, as counts of the calls that take time on real devices, and the delivery
// of messages to its receives.
#pragma once

#include <infiniband/verbs.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct device_counts {
  uint64_t doorbells;    // calls that posted, each of which writes to the device
  uint64_t completions;  // completions that the device has created
  uint64_t locks;        // calls for which a driver takes a lock: to post and to poll
};

// The counts since the program started.
struct device_counts device_counts_now(void);

// Makes receives of the queue pair wait for a message from now on. Returns 0, or an errno value.
int device_hold_receives(struct ibv_qp* qp);
// Delivers a message of `length` bytes to the queue pair, which completes the oldest receive, from
// its shared receive queue if it has one. Returns 0, ENOENT if no receive waits, or ENOMEM.
int device_deliver(struct ibv_qp* qp, uint32_t length);

#ifdef __cplusplus
}
#endif
