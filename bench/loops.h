// SPDX-License-Identifier: Apache-2.0
// Measured loops: the same work in raw C (raw.c) and in verbspp (wrapped.cpp, channel.cpp). Each
// loop executes the given number of operations, a multiple of `batch`, checks all results, and
// returns false on failure. compare.py finds the loops in callgrind's profiles by the prefix of
// their names.
#pragma once

#include <infiniband/verbs.h>

#ifdef __cplusplus
#include <cstdint>
extern "C" {
#else
#include <stdbool.h>
#include <stdint.h>
#endif

enum { message_size = 64, batch = 16 };

// The objects that a C program would use.
struct raw_ends {
  struct ibv_qp* qp;
  struct ibv_cq* cq;
  struct ibv_qp_ex* extended_qp;
  struct ibv_cq_ex* extended_cq;
  struct ibv_mr* outgoing;
  struct ibv_mr* incoming;
  uint64_t remote_address;
  uint64_t remote_length;
  uint32_t rkey;
  // Points to the caller's pointer to a buffer. A request takes ownership of the buffer: until it
  // has completed, the caller's pointer is NULL.
  struct ibv_mr** owned;
  // `2 * batch` places for received messages, and the numbers of the unused places.
  struct ibv_mr* places;
  uint32_t* free_places;
  uint32_t* free_count;
  // Points to the length of a message. Its value is message_size, but it is volatile, so the
  // compiler does not know it.
  const volatile uint32_t* length;
};

// (a) one signaled RDMA write, and its completion
bool loop_raw_write(const struct raw_ends* ends, uint64_t operations);
bool loop_prebuilt_write(const struct raw_ends* ends, uint64_t operations);
// (b) 16 sends, then their completions
bool loop_raw_send(const struct raw_ends* ends, uint64_t operations);
bool loop_prebuilt_send(const struct raw_ends* ends, uint64_t operations);
// (c) one receive, and its completion
bool loop_raw_receive(const struct raw_ends* ends, uint64_t operations);
bool loop_prebuilt_receive(const struct raw_ends* ends, uint64_t operations);
// (d) 16 sends in one list, then their completions
bool loop_raw_list(const struct raw_ends* ends, uint64_t operations);
bool loop_prebuilt_list(const struct raw_ends* ends, uint64_t operations);
// (e) one signaled RDMA write, posted with the extended interface, and its completion, read in a
// polling session
bool loop_raw_extended(const struct raw_ends* ends, uint64_t operations);

// (f) a write as in real programs: its length is known at run time only, offsets and lengths are
// checked at both ends, the poll has 16 slots, and all relevant fields of the completion are
// checked
bool loop_raw_checked(const struct raw_ends* ends, uint64_t operations);
// (g) like (f), but 16 sends, then their completions
bool loop_raw_stream(const struct raw_ends* ends, uint64_t operations);

// Further operations of channels; docs/benchmark.md explains all letters. (h), (i) and (o) are
// compared with the C loop (a), (j) with (b), and (k) with (d).
// (l) RDMA writes, of which every 16th is signaled and waited for
bool loop_raw_unsignaled(const struct raw_ends* ends, uint64_t operations);
// (m) one send that owns its buffer, and its completion, which returns the buffer
bool loop_raw_owned(const struct raw_ends* ends, uint64_t operations);
// (n) one message from a receive queue that is refilled with 16 places of a pool per doorbell
bool loop_raw_inbox(const struct raw_ends* ends, uint64_t operations);

#ifdef __cplusplus
}
#endif
