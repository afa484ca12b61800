// SPDX-License-Identifier: Apache-2.0
#include "usual.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { at_once = 16 };

#define DATA_PATH static inline __attribute__((always_inline))

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// Handles a poll that failed or returned no completion. The time limit counts from the first call,
// which sets `*begin`.
static __attribute__((noinline, cold)) int nothing_yet(int count, uint64_t* begin, uint64_t limit) {
  if (count < 0) return EIO;
  const uint64_t time = now();
  if (*begin == 0) *begin = time;
  return time - *begin > limit ? ETIMEDOUT : 0;
}

DATA_PATH int poll_some(struct ibv_cq* cq, struct ibv_wc* completions, uint64_t limit, int* count) {
  uint64_t begin = 0;
  while ((*count = ibv_poll_cq(cq, at_once, completions)) <= 0) {
    const int failure = nothing_yet(*count, &begin, limit);
    if (failure != 0) return failure;
  }
  return 0;
}

// Waits until all requests with numbers below `end` have completed.
DATA_PATH int wait_for(struct c_link* link, uint64_t end, enum ibv_wc_opcode opcode,
                       uint64_t limit) {
  while (link->done < end) {
    struct ibv_wc completions[at_once];
    int count;
    const int failure = poll_some(link->cq, completions, limit, &count);
    if (failure != 0) return failure;
    for (int i = 0; i < count; ++i) {
      if (completions[i].status != IBV_WC_SUCCESS) {
        link->status = completions[i].status;
        return EIO;
      }
      if (completions[i].opcode != opcode || completions[i].wr_id < link->done) return EPROTO;
      link->done = completions[i].wr_id + 1;
    }
  }
  return 0;
}

DATA_PATH int is_part(uint64_t whole, uint64_t offset, uint64_t length) {
  return offset <= whole && length <= whole - offset;
}

DATA_PATH int post(struct c_link* link, struct ibv_send_wr* request) {
  if (link->posted - link->done == most_in_flight) return EAGAIN;
  request->wr_id = link->posted;
  struct ibv_send_wr* bad;
  const int failure = ibv_post_send(link->qp, request, &bad);
  if (failure != 0) return failure;
  ++link->posted;
  return 0;
}

DATA_PATH int post_write(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                         const struct piece* piece, unsigned flags) {
  if (!is_part(from->length, piece->offset, piece->length) || piece->length > UINT32_MAX ||
      !is_part(to->length, piece->remote_offset, piece->length))
    return EINVAL;
  struct ibv_sge element = {.addr = (uintptr_t)from->addr + piece->offset,
                            .length = (uint32_t)piece->length,
                            .lkey = from->lkey};
  struct ibv_send_wr request = {
      .sg_list = &element,
      .num_sge = 1,
      .opcode = IBV_WR_RDMA_WRITE,
      .send_flags = flags,
      .wr.rdma = {.remote_addr = to->address + piece->remote_offset, .rkey = to->rkey}};
  return post(link, &request);
}

int c_write(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
            const struct piece* piece) {
  const int failure = post_write(link, from, to, piece, IBV_SEND_SIGNALED);
  if (failure != 0) return failure;
  return wait_for(link, link->posted, IBV_WC_RDMA_WRITE, link->limit);
}

int c_write_within(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                   const struct piece* piece) {
  const int failure = post_write(link, from, to, piece, IBV_SEND_SIGNALED);
  if (failure != 0) return failure;
  return wait_for(link, link->posted, IBV_WC_RDMA_WRITE, UINT64_C(5000000000));
}

int c_post_and_wait(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                    const struct piece* piece) {
  const int failure = post_write(link, from, to, piece, IBV_SEND_SIGNALED);
  if (failure != 0) return failure;
  return wait_for(link, link->posted, IBV_WC_RDMA_WRITE, link->limit);
}

// For each request, stores in `requests` the number of requests that were posted up to and
// including it. A wait for the request takes this number as `end`.
int c_write_all(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                const struct piece* pieces, size_t count, uint64_t* requests) {
  for (size_t i = 0; i < count; ++i) {
    const int failure = post_write(link, from, to, &pieces[i], IBV_SEND_SIGNALED);
    if (failure != 0) return failure;
    requests[i] = link->posted;
  }
  for (size_t i = 0; i < count; ++i) {
    const int failure = wait_for(link, requests[i], IBV_WC_RDMA_WRITE, link->limit);
    if (failure != 0) return failure;
  }
  return 0;
}

// Waits for room if the send queue is full.
DATA_PATH int make_room(struct c_link* link) {
  if (link->posted - link->done < most_in_flight) return 0;
  return wait_for(link, link->done + 1, IBV_WC_RDMA_WRITE, link->limit);
}

int c_write_list(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                 const struct piece* pieces, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    int failure = make_room(link);
    if (failure == 0) failure = post_write(link, from, to, &pieces[i], IBV_SEND_SIGNALED);
    if (failure != 0) return failure;
  }
  return wait_for(link, link->posted, IBV_WC_RDMA_WRITE, link->limit);
}

int c_write_stream(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                   const struct piece* pieces, size_t count, size_t rounds) {
  unsigned unsignaled = 0;
  for (; rounds > 0; --rounds)
    for (size_t i = 0; i < count; ++i) {
      int failure = make_room(link);
      if (failure != 0) return failure;
      const int is_last = rounds == 1 && i + 1 == count;
      const int is_signaled = ++unsignaled == signal_every || is_last;
      failure = post_write(link, from, to, &pieces[i], is_signaled ? IBV_SEND_SIGNALED : 0);
      if (failure != 0) return failure;
      if (is_signaled) unsignaled = 0;
    }
  return wait_for(link, link->posted, IBV_WC_RDMA_WRITE, link->limit);
}

// While the request owns the buffer, `*from` is NULL. It stays NULL if the wait fails, because the
// device may still use the buffer.
int c_write_owned(struct c_link* link, struct ibv_mr** from, const struct c_remote* to,
                  size_t remote_offset) {
  struct ibv_mr* const buffer = *from;
  if (buffer == NULL) return EINVAL;
  const struct piece all = {.length = buffer->length, .remote_offset = remote_offset};
  int failure = post_write(link, buffer, to, &all, IBV_SEND_SIGNALED);
  if (failure != 0) return failure;
  *from = NULL;
  failure = wait_for(link, link->posted, IBV_WC_RDMA_WRITE, link->limit);
  if (failure != 0) return failure;
  *from = buffer;
  return 0;
}

static __attribute__((noinline, cold)) int release(struct c_shared* shared) {
  const int failure = ibv_dereg_mr(shared->memory);
  if (failure == 0) free(shared);
  return failure;
}

int c_write_shared(struct c_link* link, struct c_shared* from, const struct c_remote* to,
                   const struct piece* piece) {
  int failure = post_write(link, from->memory, to, piece, IBV_SEND_SIGNALED);
  if (failure != 0) return failure;
  // If the wait fails, the request may still be in flight, so it keeps its reference.
  __atomic_fetch_add(&from->references, 1, __ATOMIC_RELAXED);
  failure = wait_for(link, link->posted, IBV_WC_RDMA_WRITE, link->limit);
  if (failure != 0) return failure;
  return __atomic_sub_fetch(&from->references, 1, __ATOMIC_ACQ_REL) == 0 ? release(from) : 0;
}

int c_send_message(struct c_link* link, struct c_pool* pool, const void* bytes, size_t length) {
  if (pool->available == 0) return EAGAIN;
  if (length > pool->place_size) return EMSGSIZE;
  const uint32_t place = pool->free[--pool->available];
  char* const at = (char*)pool->memory->addr + (size_t)place * pool->place_size;
  memcpy(at, bytes, length);
  struct ibv_sge element = {
      .addr = (uintptr_t)at, .length = (uint32_t)length, .lkey = pool->memory->lkey};
  struct ibv_send_wr request = {
      .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  int failure = post(link, &request);
  if (failure != 0) {
    pool->free[pool->available++] = place;
    return failure;
  }
  failure = wait_for(link, link->posted, IBV_WC_SEND, link->limit);
  if (failure != 0) return failure;  // the device may still use the place
  pool->free[pool->available++] = place;
  return 0;
}

static __attribute__((noinline)) int put(struct c_link* link, const struct ibv_mr* from,
                                         const struct c_remote* to, size_t offset, size_t length,
                                         size_t remote_offset) {
  const struct piece piece = {offset, length, remote_offset};
  const int failure = post_write(link, from, to, &piece, IBV_SEND_SIGNALED);
  if (failure != 0) return failure;
  return wait_for(link, link->posted, IBV_WC_RDMA_WRITE, link->limit);
}

int c_put_record(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                 const struct piece* piece) {
  return put(link, from, to, piece->offset, piece->length, piece->remote_offset);
}

DATA_PATH struct ibv_sge element_of(const struct ibv_mr* places, uint64_t place, uint32_t size) {
  return (struct ibv_sge){
      .addr = (uintptr_t)places->addr + place * size, .length = size, .lkey = places->lkey};
}

static int post_receive(struct c_inbox* inbox, uint64_t place) {
  struct ibv_sge element = element_of(inbox->places, place, inbox->place_size);
  struct ibv_recv_wr request = {.wr_id = place, .sg_list = &element, .num_sge = 1};
  struct ibv_recv_wr* bad;
  return ibv_post_recv(inbox->qp, &request, &bad);
}

int c_fill_inbox(struct c_inbox* inbox, uint32_t count) {
  int failure = 0;
  for (uint32_t place = 0; place < count && failure == 0; ++place)
    failure = post_receive(inbox, place);
  return failure;
}

// Receives one message and posts its place again. Stores the first value of the message in
// `*value`.
int c_receive(struct c_inbox* from, uint64_t* value) {
  struct ibv_wc completion;
  uint64_t begin = 0;
  int count;
  while ((count = ibv_poll_cq(from->cq, 1, &completion)) <= 0) {
    const int failure = nothing_yet(count, &begin, from->limit);
    if (failure != 0) return failure;
  }
  if (completion.status != IBV_WC_SUCCESS) return EIO;
  if (completion.opcode != IBV_WC_RECV || completion.byte_len < sizeof *value) return EPROTO;
  memcpy(value, (const char*)from->places->addr + completion.wr_id * from->place_size,
         sizeof *value);
  return post_receive(from, completion.wr_id);
}

int c_fill_hub(struct c_hub* hub, uint32_t count) {
  int failure = 0;
  for (uint32_t place = 0; place < count && failure == 0; ++place) {
    struct ibv_sge element = element_of(hub->places, place, hub->place_size);
    struct ibv_recv_wr request = {.wr_id = place, .sg_list = &element, .num_sge = 1};
    struct ibv_recv_wr* bad;
    failure = ibv_post_srq_recv(hub->srq, &request, &bad);
  }
  return failure;
}

void c_add_client(struct c_hub* hub, struct c_client* client) {
  uint32_t row = client->qp->qp_num % rows_of_table;
  while (hub->table[row] != NULL) row = (row + 1) % rows_of_table;
  hub->table[row] = client;
}

DATA_PATH struct c_client* find_client(const struct c_hub* hub, uint32_t number) {
  for (uint32_t row = number % rows_of_table; hub->table[row] != NULL;
       row = (row + 1) % rows_of_table)
    if (hub->table[row]->qp->qp_num == number) return hub->table[row];
  return NULL;
}

// Processes up to `slots_of_hub` messages that have arrived: counts them for their clients, and
// posts their places again with one doorbell.
int c_serve(struct c_hub* hub, size_t* served) {
  struct ibv_wc completions[slots_of_hub];
  struct ibv_sge elements[slots_of_hub];
  struct ibv_recv_wr requests[slots_of_hub];
  int count;
  const int failure = poll_some(hub->cq, completions, hub->limit, &count);
  if (failure != 0) return failure;
  for (int i = 0; i < count; ++i) {
    if (completions[i].status != IBV_WC_SUCCESS) return EIO;
    if (completions[i].opcode != IBV_WC_RECV) return EPROTO;
    struct c_client* const client = find_client(hub, completions[i].qp_num);
    if (client != NULL) {
      ++client->messages;
      client->bytes += completions[i].byte_len;
    }
    elements[i] = element_of(hub->places, completions[i].wr_id, hub->place_size);
    requests[i] = (struct ibv_recv_wr){.wr_id = completions[i].wr_id,
                                       .next = i + 1 < count ? &requests[i + 1] : NULL,
                                       .sg_list = &elements[i],
                                       .num_sge = 1};
  }
  *served = (size_t)count;
  struct ibv_recv_wr* bad;
  return ibv_post_srq_recv(hub->srq, requests, &bad);
}
