// SPDX-License-Identifier: Apache-2.0
// The loops of the echo benchmark in C, with plain verbs: a server that sleeps, its clients, and
// the two ends of a connection, which both spin. main.cpp contains the verbspp versions of the
// server and of the spinning ends, and creates the objects for both versions.
#pragma once

#include <infiniband/verbs.h>

#ifdef __cplusplus
#include <cstdint>
extern "C" {
#else
#include <stdint.h>
#endif

enum {
  echo_bytes = 64,
  echo_clients = 16,
  echo_places = 512,
  echo_receives = 256,
  echo_refill = 16,
  echo_slots = 16,
  echo_depth = 16  // the length of each send queue, and of each receive queue that is not shared
};

// Places of one size in one buffer. The first `available` entries of `free` are the numbers of the
// unused places. Each request has the number of its place in its `wr_id`.
struct plain_pool {
  struct ibv_mr* memory;
  uint32_t available;
  uint32_t free[echo_places];
};

// Queue pairs that share a completion queue and, if `srq` is not null, their receives.
struct plain_end {
  struct ibv_cq* cq;
  struct ibv_comp_channel* channel;  // null if the end spins
  struct ibv_srq* srq;
  struct ibv_qp* qps[echo_clients];
  uint32_t count;
  struct plain_pool pool;
  uint32_t posted;  // the number of posted receives
  int is_asked;     // true if an event was requested since the last sleep
  unsigned events;  // the number of events that have not been acknowledged
};

void plain_fill_pool(struct plain_pool* pool, struct ibv_mr* memory);

// The following functions return 0 or an errno value, which is EIO if polling or a request has
// failed.

// Posts receives in batches until the pool has no unused place, or until another batch would exceed
// `wanted` posted receives.
int plain_refill(struct plain_end* end, uint32_t wanted);

// Echoes the given number of messages, and sleeps between them.
int plain_serve(struct plain_end* end, uint64_t messages);

// Sends the given number of messages in total, and receives their echoes. Each queue pair has at
// most one message in flight. Returns when the sends have completed as well.
int plain_load(struct plain_end* end, uint64_t messages);

// `plain_ask` sends a message and receives one; `plain_answer` receives a message and sends it
// back. The end has one queue pair, and spins.
int plain_ask(struct plain_end* end);
int plain_answer(struct plain_end* end);
// Waits until all sends have completed.
int plain_finish(struct plain_end* end);

#ifdef __cplusplus
}
#endif
