// SPDX-License-Identifier: Apache-2.0
// The loops in C, written in the usual style for libibverbs. The raw loops build a work request for
// each operation. The prebuilt loops build their work requests at the beginning, and then only
// change the `wr_id`.
#include "loops.h"

#include <errno.h>
#include <stddef.h>

// Waits for one completion. Returns false unless it is the successful completion of this request.
static inline bool wait_for(struct ibv_cq* cq, uint64_t id) {
  struct ibv_wc completion;
  int count;
  do {
    count = ibv_poll_cq(cq, 1, &completion);
  } while (count == 0);
  return count > 0 && completion.status == IBV_WC_SUCCESS && completion.wr_id == id;
}

// Waits for the completions of the next `batch` requests. Returns false unless all are successful.
static inline bool wait_for_batch(struct ibv_cq* cq, uint64_t id) {
  struct ibv_wc completions[batch];
  for (int left = batch; left > 0;) {
    const int count = ibv_poll_cq(cq, batch, completions);
    if (count < 0) return false;
    for (int i = 0; i < count; ++i)
      if (completions[i].status != IBV_WC_SUCCESS || completions[i].wr_id != id++) return false;
    left -= count;
  }
  return true;
}

bool loop_raw_write(const struct raw_ends* ends, uint64_t operations) {
  for (uint64_t id = 0; id < operations; ++id) {
    struct ibv_sge element = {.addr = (uintptr_t)ends->outgoing->addr,
                              .length = message_size,
                              .lkey = ends->outgoing->lkey};
    struct ibv_send_wr request = {
        .wr_id = id,
        .sg_list = &element,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = ends->remote_address, .rkey = ends->rkey}};
    struct ibv_send_wr* bad;
    if (ibv_post_send(ends->qp, &request, &bad) != 0) return false;
    if (!wait_for(ends->cq, id)) return false;
  }
  return true;
}

bool loop_prebuilt_write(const struct raw_ends* ends, uint64_t operations) {
  struct ibv_sge element = {.addr = (uintptr_t)ends->outgoing->addr,
                            .length = message_size,
                            .lkey = ends->outgoing->lkey};
  struct ibv_send_wr request = {
      .sg_list = &element,
      .num_sge = 1,
      .opcode = IBV_WR_RDMA_WRITE,
      .send_flags = IBV_SEND_SIGNALED,
      .wr.rdma = {.remote_addr = ends->remote_address, .rkey = ends->rkey}};
  for (uint64_t id = 0; id < operations; ++id) {
    request.wr_id = id;
    struct ibv_send_wr* bad;
    if (ibv_post_send(ends->qp, &request, &bad) != 0) return false;
    if (!wait_for(ends->cq, id)) return false;
  }
  return true;
}

bool loop_raw_send(const struct raw_ends* ends, uint64_t operations) {
  for (uint64_t first = 0; first < operations; first += batch) {
    for (uint64_t id = first; id < first + batch; ++id) {
      struct ibv_sge element = {.addr = (uintptr_t)ends->outgoing->addr,
                                .length = message_size,
                                .lkey = ends->outgoing->lkey};
      struct ibv_send_wr request = {.wr_id = id,
                                    .sg_list = &element,
                                    .num_sge = 1,
                                    .opcode = IBV_WR_SEND,
                                    .send_flags = IBV_SEND_SIGNALED};
      struct ibv_send_wr* bad;
      if (ibv_post_send(ends->qp, &request, &bad) != 0) return false;
    }
    if (!wait_for_batch(ends->cq, first)) return false;
  }
  return true;
}

bool loop_prebuilt_send(const struct raw_ends* ends, uint64_t operations) {
  struct ibv_sge element = {.addr = (uintptr_t)ends->outgoing->addr,
                            .length = message_size,
                            .lkey = ends->outgoing->lkey};
  struct ibv_send_wr request = {
      .sg_list = &element, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
  for (uint64_t first = 0; first < operations; first += batch) {
    for (uint64_t id = first; id < first + batch; ++id) {
      request.wr_id = id;
      struct ibv_send_wr* bad;
      if (ibv_post_send(ends->qp, &request, &bad) != 0) return false;
    }
    if (!wait_for_batch(ends->cq, first)) return false;
  }
  return true;
}

bool loop_raw_receive(const struct raw_ends* ends, uint64_t operations) {
  for (uint64_t id = 0; id < operations; ++id) {
    struct ibv_sge element = {.addr = (uintptr_t)ends->incoming->addr,
                              .length = message_size,
                              .lkey = ends->incoming->lkey};
    struct ibv_recv_wr request = {.wr_id = id, .sg_list = &element, .num_sge = 1};
    struct ibv_recv_wr* bad;
    if (ibv_post_recv(ends->qp, &request, &bad) != 0) return false;
    if (!wait_for(ends->cq, id)) return false;
  }
  return true;
}

bool loop_prebuilt_receive(const struct raw_ends* ends, uint64_t operations) {
  struct ibv_sge element = {.addr = (uintptr_t)ends->incoming->addr,
                            .length = message_size,
                            .lkey = ends->incoming->lkey};
  struct ibv_recv_wr request = {.sg_list = &element, .num_sge = 1};
  for (uint64_t id = 0; id < operations; ++id) {
    request.wr_id = id;
    struct ibv_recv_wr* bad;
    if (ibv_post_recv(ends->qp, &request, &bad) != 0) return false;
    if (!wait_for(ends->cq, id)) return false;
  }
  return true;
}

bool loop_raw_list(const struct raw_ends* ends, uint64_t operations) {
  for (uint64_t first = 0; first < operations; first += batch) {
    struct ibv_sge elements[batch];
    struct ibv_send_wr requests[batch];
    for (int i = 0; i < batch; ++i) {
      elements[i] = (struct ibv_sge){.addr = (uintptr_t)ends->outgoing->addr,
                                     .length = message_size,
                                     .lkey = ends->outgoing->lkey};
      requests[i] = (struct ibv_send_wr){.wr_id = first + (uint64_t)i,
                                         .next = &requests[i + 1],
                                         .sg_list = &elements[i],
                                         .num_sge = 1,
                                         .opcode = IBV_WR_SEND,
                                         .send_flags = IBV_SEND_SIGNALED};
    }
    requests[batch - 1].next = NULL;
    struct ibv_send_wr* bad;
    if (ibv_post_send(ends->qp, requests, &bad) != 0) return false;
    if (!wait_for_batch(ends->cq, first)) return false;
  }
  return true;
}

bool loop_prebuilt_list(const struct raw_ends* ends, uint64_t operations) {
  struct ibv_sge element = {.addr = (uintptr_t)ends->outgoing->addr,
                            .length = message_size,
                            .lkey = ends->outgoing->lkey};
  struct ibv_send_wr requests[batch];
  for (int i = 0; i < batch; ++i)
    requests[i] = (struct ibv_send_wr){.next = i + 1 < batch ? &requests[i + 1] : NULL,
                                       .sg_list = &element,
                                       .num_sge = 1,
                                       .opcode = IBV_WR_SEND,
                                       .send_flags = IBV_SEND_SIGNALED};
  for (uint64_t first = 0; first < operations; first += batch) {
    for (int i = 0; i < batch; ++i) requests[i].wr_id = first + (uint64_t)i;
    struct ibv_send_wr* bad;
    if (ibv_post_send(ends->qp, requests, &bad) != 0) return false;
    if (!wait_for_batch(ends->cq, first)) return false;
  }
  return true;
}

// Waits until a polling session finds completions. Returns false unless all of them are successful
// writes with this id.
static inline bool wait_for_session(struct ibv_cq_ex* cq, uint64_t id) {
  for (;;) {
    struct ibv_poll_cq_attr attributes = {0};
    int returned = ibv_start_poll(cq, &attributes);
    if (returned == ENOENT) continue;
    if (returned != 0) return false;
    bool good = true;
    do {
      if (cq->status != IBV_WC_SUCCESS || cq->wr_id != id ||
          ibv_wc_read_opcode(cq) != IBV_WC_RDMA_WRITE)
        good = false;
      returned = ibv_next_poll(cq);
    } while (returned == 0);
    ibv_end_poll(cq);
    return good && returned == ENOENT;
  }
}

bool loop_raw_extended(const struct raw_ends* ends, uint64_t operations) {
  for (uint64_t id = 0; id < operations; ++id) {
    struct ibv_qp_ex* qp = ends->extended_qp;
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, ends->rkey, ends->remote_address);
    ibv_wr_set_sge(qp, ends->outgoing->lkey, (uintptr_t)ends->outgoing->addr, message_size);
    if (ibv_wr_complete(qp) != 0) return false;
    if (!wait_for_session(ends->extended_cq, id)) return false;
  }
  return true;
}

// True if the offset and length denote a part of the memory, and the length fits into an element.
static inline bool is_part(uint64_t memory_length, uint64_t offset, uint64_t length) {
  return offset <= memory_length && length <= memory_length - offset && length <= UINT32_MAX;
}

// Takes the available completions, up to 16, and adds their number to `*id`. Returns false unless
// all are successful, have this operation, and have consecutive ids, starting with `*id`.
static inline bool take(struct ibv_cq* cq, enum ibv_wc_opcode operation, uint64_t* id) {
  struct ibv_wc completions[batch];
  const int count = ibv_poll_cq(cq, batch, completions);
  if (count < 0) return false;
  for (int i = 0; i < count; ++i) {
    if (completions[i].status != IBV_WC_SUCCESS) return false;
    if (completions[i].opcode != operation || completions[i].wr_id != *id) return false;
    ++*id;
  }
  return true;
}

bool loop_raw_checked(const struct raw_ends* ends, uint64_t operations) {
  for (uint64_t id = 0; id < operations; ++id) {
    const uint32_t length = *ends->length;
    const uint64_t offset = message_size - length;
    if (!is_part(ends->outgoing->length, offset, length)) return false;
    if (offset > ends->remote_length || length > ends->remote_length - offset) return false;
    struct ibv_sge element = {.addr = (uintptr_t)ends->outgoing->addr + offset,
                              .length = length,
                              .lkey = ends->outgoing->lkey};
    struct ibv_send_wr request = {
        .wr_id = id,
        .sg_list = &element,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = ends->remote_address + offset, .rkey = ends->rkey}};
    struct ibv_send_wr* bad;
    if (ibv_post_send(ends->qp, &request, &bad) != 0) return false;
    for (uint64_t done = id; done == id;)
      if (!take(ends->cq, IBV_WC_RDMA_WRITE, &done)) return false;
  }
  return true;
}

bool loop_raw_stream(const struct raw_ends* ends, uint64_t operations) {
  uint64_t done = 0;
  for (uint64_t first = 0; first < operations; first += batch) {
    for (uint64_t id = first; id < first + batch; ++id) {
      const uint32_t length = *ends->length;
      const uint64_t offset = message_size - length;
      if (!is_part(ends->outgoing->length, offset, length)) return false;
      struct ibv_sge element = {.addr = (uintptr_t)ends->outgoing->addr + offset,
                                .length = length,
                                .lkey = ends->outgoing->lkey};
      struct ibv_send_wr request = {.wr_id = id,
                                    .sg_list = &element,
                                    .num_sge = 1,
                                    .opcode = IBV_WR_SEND,
                                    .send_flags = IBV_SEND_SIGNALED};
      struct ibv_send_wr* bad;
      if (ibv_post_send(ends->qp, &request, &bad) != 0) return false;
    }
    while (done < first + batch)
      if (!take(ends->cq, IBV_WC_SEND, &done)) return false;
  }
  return true;
}

bool loop_raw_unsignaled(const struct raw_ends* ends, uint64_t operations) {
  for (uint64_t id = 0; id < operations; ++id) {
    const bool is_last = id % batch == batch - 1;
    struct ibv_sge element = {.addr = (uintptr_t)ends->outgoing->addr,
                              .length = message_size,
                              .lkey = ends->outgoing->lkey};
    struct ibv_send_wr request = {
        .wr_id = id,
        .sg_list = &element,
        .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = is_last ? IBV_SEND_SIGNALED : 0,
        .wr.rdma = {.remote_addr = ends->remote_address, .rkey = ends->rkey}};
    struct ibv_send_wr* bad;
    if (ibv_post_send(ends->qp, &request, &bad) != 0) return false;
    if (is_last && !wait_for(ends->cq, id)) return false;
  }
  return true;
}

bool loop_raw_owned(const struct raw_ends* ends, uint64_t operations) {
  for (; operations > 0; --operations) {
    struct ibv_mr* buffer = *ends->owned;
    if (buffer == NULL) return false;
    *ends->owned = NULL;
    struct ibv_sge element = {
        .addr = (uintptr_t)buffer->addr, .length = (uint32_t)buffer->length, .lkey = buffer->lkey};
    struct ibv_send_wr request = {.wr_id = (uintptr_t)buffer,
                                  .sg_list = &element,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND,
                                  .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr* bad;
    if (ibv_post_send(ends->qp, &request, &bad) != 0) return false;
    struct ibv_wc completion;
    int count;
    do {
      count = ibv_poll_cq(ends->cq, 1, &completion);
    } while (count == 0);
    if (count < 0 || completion.status != IBV_WC_SUCCESS) return false;
    *ends->owned = (struct ibv_mr*)(uintptr_t)completion.wr_id;
  }
  return true;
}

// Posts a list of receives, each into a free place. The `wr_id` of a receive is the number of its
// place.
static inline bool refill(const struct raw_ends* ends) {
  struct ibv_sge elements[batch];
  struct ibv_recv_wr requests[batch];
  for (int i = 0; i < batch; ++i) {
    const uint32_t place = ends->free_places[--*ends->free_count];
    elements[i] =
        (struct ibv_sge){.addr = (uintptr_t)ends->places->addr + (uint64_t)place * message_size,
                         .length = message_size,
                         .lkey = ends->places->lkey};
    requests[i] = (struct ibv_recv_wr){.wr_id = place,
                                       .next = i + 1 < batch ? &requests[i + 1] : NULL,
                                       .sg_list = &elements[i],
                                       .num_sge = 1};
  }
  struct ibv_recv_wr* bad;
  return ibv_post_recv(ends->qp, requests, &bad) == 0;
}

bool loop_raw_inbox(const struct raw_ends* ends, uint64_t operations) {
  for (uint64_t done = 0; done < operations;) {
    if (*ends->free_count >= batch && !refill(ends)) return false;
    struct ibv_wc completions[batch];
    const int count = ibv_poll_cq(ends->cq, batch, completions);
    if (count < 0) return false;
    for (int i = 0; i < count; ++i, ++done) {
      if (completions[i].status != IBV_WC_SUCCESS || completions[i].opcode != IBV_WC_RECV ||
          completions[i].byte_len != message_size)
        return false;
      ends->free_places[(*ends->free_count)++] = (uint32_t)completions[i].wr_id;
    }
  }
  return true;
}
