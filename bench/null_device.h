// SPDX-License-Identifier: Apache-2.0
// Counts of the work that takes time on real devices, and functions with which a loop takes the
// role of the peer.
#pragma once

#include <infiniband/verbs.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct device_counts {
  uint64_t doorbells;    // calls that posted something; each writes to the device
  uint64_t completions;  // completions that the device has created
  uint64_t locks;        // calls for which a driver takes a lock: to post and to poll
};

// The counts since the program started.
struct device_counts device_counts_now(void);

// From now on, receives of the queue pair complete only when a message is delivered. Returns 0, or
// an errno value.
int device_hold_receives(struct ibv_qp* qp);
// Delivers a message of `length` bytes to the queue pair, and completes the oldest receive of the
// queue pair or, if it has one, of its shared receive queue. The memory of the receive is not
// changed. Returns 0, ENOENT if no receive is posted, or ENOMEM.
int device_deliver(struct ibv_qp* qp, uint32_t length);
// Like `device_deliver`, but copies the bytes of the message to the memory of the receive. Returns
// EMSGSIZE if they do not fit.
int device_deliver_bytes(struct ibv_qp* qp, const void* bytes, uint32_t length);

// Copies to `into` the oldest message that the queue pair has sent and that has not been taken yet.
// Returns its length, or 0 if there is none. Queue pairs that hold their receives keep the messages
// that they send, which must have one element of at most 128 bytes; other queue pairs keep none.
uint32_t device_take_sent(struct ibv_qp* qp, void* into);

#ifdef __cplusplus
}
#endif
