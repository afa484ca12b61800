// SPDX-License-Identifier: Apache-2.0
#include "plain.h"

#include <errno.h>
#include <string.h>

enum { is_send = 1 << 16 };  // a bit of the `wr_id` that marks sends; the lower bits are the place

static char* address_of(struct plain_pool* pool, uint32_t place) {
  return (char*)pool->memory->addr + (size_t)place * echo_bytes;
}

void plain_fill_pool(struct plain_pool* pool, struct ibv_mr* memory) {
  pool->memory = memory;
  pool->available = echo_places;
  for (uint32_t i = 0; i < echo_places; ++i) pool->free[i] = i;
}

static struct ibv_sge element_of(struct plain_pool* pool, uint32_t place, uint32_t length) {
  return (struct ibv_sge){
      .addr = (uintptr_t)address_of(pool, place), .length = length, .lkey = pool->memory->lkey};
}

int plain_refill(struct plain_end* end, uint32_t wanted) {
  const uint32_t batch = wanted / 2 < echo_refill ? wanted / 2 : echo_refill;
  while (end->posted < wanted && (wanted - end->posted >= batch || end->posted == 0)) {
    struct ibv_recv_wr requests[echo_refill];
    struct ibv_sge elements[echo_refill];
    uint32_t count = wanted - end->posted < batch ? wanted - end->posted : batch;
    if (count > end->pool.available) count = end->pool.available;
    if (count == 0) return 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t place = end->pool.free[--end->pool.available];
      elements[i] = element_of(&end->pool, place, echo_bytes);
      requests[i] = (struct ibv_recv_wr){.wr_id = place,
                                         .next = i + 1 < count ? &requests[i + 1] : NULL,
                                         .sg_list = &elements[i],
                                         .num_sge = 1};
    }
    struct ibv_recv_wr* rejected = NULL;
    const int failure = end->srq != NULL ? ibv_post_srq_recv(end->srq, requests, &rejected)
                                         : ibv_post_recv(end->qps[0], requests, &rejected);
    if (failure != 0) return failure;
    end->posted += count;
  }
  return 0;
}

static int post_send(struct plain_end* end, struct ibv_qp* qp, uint32_t place, uint32_t length) {
  struct ibv_sge element = element_of(&end->pool, place, length);
  struct ibv_send_wr request = {.wr_id = is_send | place,
                                .sg_list = &element,
                                .num_sge = 1,
                                .opcode = IBV_WR_SEND,
                                .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* rejected = NULL;
  return ibv_post_send(qp, &request, &rejected);
}

// If the completion belongs to a send, frees the send's place and returns 1. Returns 0 for a
// receive.
static int take_send(struct plain_end* end, const struct ibv_wc* completion) {
  if ((completion->wr_id & is_send) == 0) return 0;
  end->pool.free[end->pool.available++] = (uint32_t)(completion->wr_id & ~(uint64_t)is_send);
  return 1;
}

static struct ibv_qp* queue_pair_of(const struct plain_end* end, uint32_t number) {
  for (uint32_t i = 0; i < end->count; ++i)
    if (end->qps[i]->qp_num == number) return end->qps[i];
  return NULL;
}

// Echoes the received messages among these completions.
static int echo(struct plain_end* end, const struct ibv_wc* completions, int count,
                uint64_t* messages) {
  for (int i = 0; i < count; ++i) {
    const struct ibv_wc* const each = &completions[i];
    if (each->status != IBV_WC_SUCCESS) return EIO;
    if (take_send(end, each)) continue;
    --end->posted;
    struct ibv_qp* const qp = queue_pair_of(end, each->qp_num);
    if (qp == NULL) return EPROTO;
    const int failure = post_send(end, qp, (uint32_t)each->wr_id, each->byte_len);
    if (failure != 0) return failure;
    --*messages;
  }
  return plain_refill(end, echo_receives);
}

// Sleeps until there may be completions. Returns immediately if there is no completion channel. If
// no event was requested since the last sleep, only requests one. The caller then has to poll
// again, because completions that arrived before the request raise no event.
static int rest(struct plain_end* end) {
  if (end->channel == NULL) return 0;
  if (!end->is_asked) {
    end->is_asked = 1;
    return ibv_req_notify_cq(end->cq, 0);
  }
  end->is_asked = 0;
  struct ibv_cq* source = NULL;
  void* context = NULL;
  if (ibv_get_cq_event(end->channel, &source, &context) != 0) return errno;
  if (++end->events == 64) {
    ibv_ack_cq_events(source, end->events);
    end->events = 0;
  }
  return 0;
}

int plain_serve(struct plain_end* end, uint64_t messages) {
  while (messages != 0) {
    struct ibv_wc completions[echo_slots];
    const int count = ibv_poll_cq(end->cq, echo_slots, completions);
    if (count < 0) return EIO;
    const int failure = count > 0 ? echo(end, completions, count, &messages) : rest(end);
    if (failure != 0) return failure;
  }
  return plain_finish(end);
}

static int send_next(struct plain_end* end, struct ibv_qp* qp) {
  if (end->pool.available == 0) return ENOBUFS;
  const uint32_t place = end->pool.free[--end->pool.available];
  memset(address_of(&end->pool, place), (int)place, echo_bytes);
  return post_send(end, qp, place, echo_bytes);
}

int plain_load(struct plain_end* end, uint64_t messages) {
  uint64_t to_send = messages;
  for (uint32_t i = 0; i < end->count && to_send != 0; ++i, --to_send) {
    const int failure = send_next(end, end->qps[i]);
    if (failure != 0) return failure;
  }
  while (messages != 0) {
    struct ibv_wc completions[echo_slots];
    const int count = ibv_poll_cq(end->cq, echo_slots, completions);
    if (count < 0) return EIO;
    for (int i = 0; i < count; ++i) {
      if (completions[i].status != IBV_WC_SUCCESS || completions[i].byte_len > echo_bytes)
        return EIO;
      if (take_send(end, &completions[i])) continue;
      end->pool.free[end->pool.available++] = (uint32_t)completions[i].wr_id;
      --end->posted;
      --messages;
      if (to_send == 0) continue;
      --to_send;
      const int failure = send_next(end, queue_pair_of(end, completions[i].qp_num));
      if (failure != 0) return failure;
    }
    const int failure = count > 0 ? plain_refill(end, echo_receives) : rest(end);
    if (failure != 0) return failure;
  }
  return plain_finish(end);
}

int plain_finish(struct plain_end* end) {
  if (end->events != 0) ibv_ack_cq_events(end->cq, end->events);
  end->events = 0;
  while (end->pool.available + end->posted != echo_places) {
    struct ibv_wc completion;
    const int count = ibv_poll_cq(end->cq, 1, &completion);
    if (count < 0) return EIO;
    if (count == 0) continue;
    if (completion.status != IBV_WC_SUCCESS || !take_send(end, &completion)) return EIO;
  }
  return 0;
}

// Returns the place of the next message, or a negative errno value.
static int64_t take_message(struct plain_end* end, uint32_t* length) {
  for (;;) {
    struct ibv_wc completion;
    const int count = ibv_poll_cq(end->cq, 1, &completion);
    if (count == 0) continue;
    if (count < 0 || completion.status != IBV_WC_SUCCESS) return -EIO;
    if (take_send(end, &completion)) continue;
    --end->posted;
    const int failure = plain_refill(end, echo_depth);
    if (failure != 0) return -failure;
    *length = completion.byte_len;
    return (int64_t)completion.wr_id;
  }
}

int plain_ask(struct plain_end* end) {
  int failure = send_next(end, end->qps[0]);
  if (failure != 0) return failure;
  uint32_t length = 0;
  const int64_t place = take_message(end, &length);
  if (place < 0) return (int)-place;
  end->pool.free[end->pool.available++] = (uint32_t)place;
  return length == echo_bytes ? 0 : EPROTO;
}

int plain_answer(struct plain_end* end) {
  uint32_t length = 0;
  const int64_t place = take_message(end, &length);
  return place < 0 ? (int)-place : post_send(end, end->qps[0], (uint32_t)place, length);
}
