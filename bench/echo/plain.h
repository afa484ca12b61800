// SPDX-License-Identifier: Apache-2.0
// The echo benchmark's loops in C, with plain verbs: a server that sleeps, its clients, and one end
// of a connection that spins. main.cpp has the same in verbspp, and makes the objects of all.
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
  echo_depth = 16  // the requests of a queue pair's send queue
};

// Places of one size in one buffer; the first `available` numbers of `free` are of unused ones.
// Requests have the number of their place as their `wr_id`.
struct plain_pool {
  struct ibv_mr* memory;
  uint32_t available;
  uint32_t free[echo_places];
};

// Queue pairs that share a completion queue and, if `srq` is not null, their receives.
struct plain_end {
  struct ibv_cq* cq;
  struct ibv_comp_channel* channel;  // null if it spins
  struct ibv_srq* srq;
  struct ibv_qp* qps[echo_clients];
  uint32_t count;
  struct plain_pool pool;
  uint32_t posted;  // receives, of all
  int is_asked;     // to be woken, since the last sleep
  unsigned events;  // that were not acknowledged
};

void plain_fill_pool(struct plain_pool* pool, struct ibv_mr* memory);

// All functions return 0, or an errno value; EIO if a request has failed.

// Posts receives in batches, until there are enough.
int plain_refill(struct plain_end* end, uint32_t wanted);

// Echoes this number of messages, and sleeps in between.
int plain_serve(struct plain_end* end, uint64_t messages);

// Sends this number of messages in all, one at a time by each queue pair, and receives their
// echoes. Returns when its sends have completed as well.
int plain_load(struct plain_end* end, uint64_t messages);

// Sends a message, and takes the next one; or takes one, and sends it back. The end has one queue
// pair, and spins.
int plain_ask(struct plain_end* end);
int plain_answer(struct plain_end* end);
// Waits until all sends have completed.
int plain_finish(struct plain_end* end);

#ifdef __cplusplus
}
#endif
