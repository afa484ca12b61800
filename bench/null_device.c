// SPDX-License-Identifier: Apache-2.0
// A verbs device that does almost nothing: posting a signaled request or a receive puts its
// completion into the completion queue immediately, without a transfer of data. The exceptions are
// the receives of shared receive queues, and of the queue pairs chosen with `device_hold_receives`:
// they complete when a loop delivers a message to them. So nearly all of a loop's cost is the
// program's own.
//
// Like softverbs, it defines entry points of libibverbs, which take precedence over those of the
// library. It is the only device, implements the functions that the loops need, and supports only
// one thread.
#include "null_device.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

#define EXPORT __attribute__((visibility("default")))

enum { only_port = 1, most_completions = 1 << 16, most_requests = 1 << 14, most_elements = 16 };
enum { most_waiting = 512, most_sent = 64, most_bytes_sent = 128 };

static struct ibv_device device = {
    .node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "null0"};

static struct device_counts counts;

EXPORT struct device_counts device_counts_now(void) { return counts; }

static void* refuse(void) {
  errno = EOPNOTSUPP;
  return NULL;
}

// Completion queues

struct queue {
  union {
    struct ibv_cq plain;
    struct ibv_cq_ex extended;
  } verbs;
  struct ibv_wc* ring;
  // Positions only increase. The size of the ring is a power of two, and `mask` is this size minus
  // one.
  unsigned mask, first, end;
  unsigned next;  // the next completion of the polling session
};

// Stores a completion at the position. The caller makes it visible by increasing `end`.
static int put(struct queue* queue, unsigned position, uint64_t id, enum ibv_wc_opcode opcode,
               uint32_t length, uint32_t number) {
  if (position - queue->first > queue->mask) return ENOMEM;
  struct ibv_wc* to = &queue->ring[position & queue->mask];
  *to = (struct ibv_wc){.wr_id = id,
                        .status = IBV_WC_SUCCESS,
                        .opcode = opcode,
                        .byte_len = length,
                        .qp_num = number};
  ++counts.completions;
  return 0;
}

static int poll_cq(struct ibv_cq* cq, int most, struct ibv_wc* to) {
  struct queue* queue = (struct queue*)cq;
  int count = 0;
  ++counts.locks;
  for (; count < most && queue->first != queue->end; ++count)
    to[count] = queue->ring[queue->first++ & queue->mask];
  return count;
}

static int next_poll(struct ibv_cq_ex* cq) {
  struct queue* queue = (struct queue*)cq;
  if (queue->next == queue->end) return ENOENT;
  const struct ibv_wc* from = &queue->ring[queue->next++ & queue->mask];
  cq->wr_id = from->wr_id;
  cq->status = from->status;
  return 0;
}
static int start_poll(struct ibv_cq_ex* cq, struct ibv_poll_cq_attr* attributes) {
  struct queue* queue = (struct queue*)cq;
  if (attributes->comp_mask != 0) return EINVAL;
  ++counts.locks;
  queue->next = queue->first;
  return next_poll(cq);
}
static void end_poll(struct ibv_cq_ex* cq) {
  struct queue* queue = (struct queue*)cq;
  queue->first = queue->next;
}
static const struct ibv_wc* current(struct ibv_cq_ex* cq) {
  struct queue* queue = (struct queue*)cq;
  return &queue->ring[(queue->next - 1) & queue->mask];
}
static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex* cq) { return current(cq)->opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex* cq) { return current(cq)->vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex* cq) { return current(cq)->byte_len; }
static __be32 read_imm_data(struct ibv_cq_ex* cq) { return current(cq)->imm_data; }
static uint32_t read_qp_num(struct ibv_cq_ex* cq) { return current(cq)->qp_num; }
static uint32_t read_src_qp(struct ibv_cq_ex* cq) { return current(cq)->src_qp; }
static unsigned read_wc_flags(struct ibv_cq_ex* cq) { return current(cq)->wc_flags; }
static uint32_t read_slid(struct ibv_cq_ex* cq) { return current(cq)->slid; }
static uint8_t read_sl(struct ibv_cq_ex* cq) { return current(cq)->sl; }
static uint8_t read_dlid_path_bits(struct ibv_cq_ex* cq) { return current(cq)->dlid_path_bits; }

EXPORT struct ibv_cq* ibv_create_cq(struct ibv_context* context, int entries, void* cq_context,
                                    struct ibv_comp_channel* channel, int vector) {
  if (channel != NULL) return refuse();
  if (entries < 1 || entries > most_completions || vector != 0) {
    errno = EINVAL;
    return NULL;
  }
  unsigned size = 1;
  while (size < (unsigned)entries) size *= 2;
  struct queue* queue = calloc(1, sizeof *queue);
  if (queue == NULL || (queue->ring = calloc(size, sizeof *queue->ring)) == NULL) {
    free(queue);
    return NULL;
  }
  queue->mask = size - 1;
  queue->verbs.extended = (struct ibv_cq_ex){
      .context = context,
      .cq_context = cq_context,
      .cqe = (int)size,
      .start_poll = start_poll,
      .next_poll = next_poll,
      .end_poll = end_poll,
      .read_opcode = read_opcode,
      .read_vendor_err = read_vendor_err,
      .read_byte_len = read_byte_len,
      .read_imm_data = read_imm_data,
      .read_qp_num = read_qp_num,
      .read_src_qp = read_src_qp,
      .read_wc_flags = read_wc_flags,
      .read_slid = read_slid,
      .read_sl = read_sl,
      .read_dlid_path_bits = read_dlid_path_bits,
  };
  return &queue->verbs.plain;
}

static struct ibv_cq_ex* create_cq_ex(struct ibv_context* context,
                                      struct ibv_cq_init_attr_ex* attributes) {
  if ((attributes->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS) != 0) return refuse();
  return (struct ibv_cq_ex*)ibv_create_cq(context, (int)attributes->cqe, attributes->cq_context,
                                          attributes->channel, (int)attributes->comp_vector);
}

EXPORT int ibv_destroy_cq(struct ibv_cq* cq) {
  free(((struct queue*)cq)->ring);
  free(cq);
  return 0;
}

// Queue pairs

// Posted receives that wait for a message, in the order of posting: the `wr_id` of each, and its
// first element.
struct waiting {
  uint64_t ids[most_waiting];
  struct ibv_sge elements[most_waiting];
  unsigned first, end;  // these only increase
};

static int add_waiting(struct waiting* to, const struct ibv_recv_wr* request) {
  if (to->end - to->first == most_waiting) return ENOMEM;
  to->ids[to->end % most_waiting] = request->wr_id;
  to->elements[to->end % most_waiting] =
      request->num_sge > 0 ? request->sg_list[0] : (struct ibv_sge){.length = 0};
  ++to->end;
  return 0;
}

// Messages that were sent, in the order of posting.
struct sent {
  struct {
    uint32_t length;
    char bytes[most_bytes_sent];
  } messages[most_sent];
  unsigned first, end;  // these only increase
};

static int keep(struct sent* to, const struct ibv_send_wr* request) {
  const struct ibv_sge* const from = request->sg_list;
  if (to->end - to->first == most_sent) return ENOMEM;
  if (request->num_sge != 1 || from->length > most_bytes_sent) return EMSGSIZE;
  to->messages[to->end % most_sent].length = from->length;
  memcpy(to->messages[to->end++ % most_sent].bytes, (const void*)(uintptr_t)from->addr,
         from->length);
  return 0;
}

struct pair {
  union {
    struct ibv_qp plain;
    struct ibv_qp_ex extended;
  } verbs;
  int has_extended;
  struct waiting* waiting;  // NULL: receives complete immediately
  struct sent* sent;        // NULL: the bytes that are sent are not kept
  // Used between wr_start and wr_complete: the position of the next completion, and the first
  // failure.
  unsigned end;
  int failure;
};

static int post_send(struct ibv_qp* qp, struct ibv_send_wr* request, struct ibv_send_wr** bad) {
  struct queue* queue = (struct queue*)qp->send_cq;
  struct sent* const sent = ((struct pair*)qp)->sent;
  ++counts.locks;
  ++counts.doorbells;
  for (; request != NULL; request = request->next) {
    int failure = 0;
    if (qp->state != IBV_QPS_RTS)
      failure = EINVAL;
    else if (request->opcode != IBV_WR_SEND && request->opcode != IBV_WR_RDMA_WRITE)
      failure = EOPNOTSUPP;
    else if (request->opcode == IBV_WR_SEND && sent != NULL)
      failure = keep(sent, request);
    if (failure == 0 && (request->send_flags & IBV_SEND_SIGNALED) != 0)
      failure =
          put(queue, queue->end, request->wr_id,
              request->opcode == IBV_WR_SEND ? IBV_WC_SEND : IBV_WC_RDMA_WRITE, 0, qp->qp_num);
    if (failure != 0) {
      *bad = request;
      return failure;
    }
    if ((request->send_flags & IBV_SEND_SIGNALED) != 0) ++queue->end;
  }
  return 0;
}

static int post_recv(struct ibv_qp* qp, struct ibv_recv_wr* request, struct ibv_recv_wr** bad) {
  struct queue* queue = (struct queue*)qp->recv_cq;
  struct waiting* waiting = ((struct pair*)qp)->waiting;
  ++counts.locks;
  ++counts.doorbells;
  for (; request != NULL; request = request->next) {
    int failure;
    if (waiting != NULL) {
      failure = add_waiting(waiting, request);
    } else {
      uint32_t length = 0;
      for (int i = 0; i < request->num_sge; ++i) length += request->sg_list[i].length;
      failure = put(queue, queue->end, request->wr_id, IBV_WC_RECV, length, qp->qp_num);
      if (failure == 0) ++queue->end;
    }
    if (failure != 0) {
      *bad = request;
      return failure;
    }
  }
  return 0;
}

struct shared_receives {
  struct ibv_srq verbs;
  struct waiting waiting;
};

static int post_srq_recv(struct ibv_srq* srq, struct ibv_recv_wr* request,
                         struct ibv_recv_wr** bad) {
  ++counts.locks;
  ++counts.doorbells;
  for (; request != NULL; request = request->next)
    if (add_waiting(&((struct shared_receives*)srq)->waiting, request) != 0) {
      *bad = request;
      return ENOMEM;
    }
  return 0;
}

EXPORT int device_hold_receives(struct ibv_qp* qp) {
  struct pair* pair = (struct pair*)qp;
  pair->waiting = calloc(1, sizeof *pair->waiting);
  pair->sent = calloc(1, sizeof *pair->sent);
  return pair->waiting == NULL || pair->sent == NULL ? ENOMEM : 0;
}

EXPORT uint32_t device_take_sent(struct ibv_qp* qp, void* into) {
  struct sent* const sent = ((struct pair*)qp)->sent;
  if (sent == NULL || sent->first == sent->end) return 0;
  const unsigned place = sent->first++ % most_sent;
  memcpy(into, sent->messages[place].bytes, sent->messages[place].length);
  return sent->messages[place].length;
}

static struct waiting* waiting_of(struct ibv_qp* qp) {
  return qp->srq != NULL ? &((struct shared_receives*)qp->srq)->waiting
                         : ((struct pair*)qp)->waiting;
}

EXPORT int device_deliver(struct ibv_qp* qp, uint32_t length) {
  struct waiting* const waiting = waiting_of(qp);
  struct queue* queue = (struct queue*)qp->recv_cq;
  if (waiting == NULL || waiting->first == waiting->end) return ENOENT;
  const int failure = put(queue, queue->end, waiting->ids[waiting->first % most_waiting],
                          IBV_WC_RECV, length, qp->qp_num);
  if (failure != 0) return failure;
  ++waiting->first;
  ++queue->end;
  return 0;
}

EXPORT int device_deliver_bytes(struct ibv_qp* qp, const void* bytes, uint32_t length) {
  const struct waiting* const waiting = waiting_of(qp);
  if (waiting == NULL || waiting->first == waiting->end) return ENOENT;
  const struct ibv_sge* const into = &waiting->elements[waiting->first % most_waiting];
  if (length > into->length) return EMSGSIZE;
  memcpy((void*)(uintptr_t)into->addr, bytes, length);
  return device_deliver(qp, length);
}

static void wr_start(struct ibv_qp_ex* qp) {
  struct pair* pair = (struct pair*)qp;
  ++counts.locks;
  pair->end = ((struct queue*)qp->qp_base.send_cq)->end;
  pair->failure = qp->qp_base.state == IBV_QPS_RTS ? 0 : EINVAL;
}
static void add(struct ibv_qp_ex* qp, enum ibv_wc_opcode opcode) {
  struct pair* pair = (struct pair*)qp;
  if (pair->failure != 0 || (qp->wr_flags & IBV_SEND_SIGNALED) == 0) return;
  pair->failure = put((struct queue*)qp->qp_base.send_cq, pair->end++, qp->wr_id, opcode, 0,
                      qp->qp_base.qp_num);
}
static int wr_complete(struct ibv_qp_ex* qp) {
  const struct pair* pair = (const struct pair*)qp;
  ++counts.doorbells;
  if (pair->failure == 0) ((struct queue*)qp->qp_base.send_cq)->end = pair->end;
  return pair->failure;
}
static void wr_abort(struct ibv_qp_ex* qp) { (void)qp; }
static void wr_send(struct ibv_qp_ex* qp) { add(qp, IBV_WC_SEND); }
static void wr_send_imm(struct ibv_qp_ex* qp, __be32 immediate) {
  (void)immediate;
  add(qp, IBV_WC_SEND);
}
static void wr_rdma_write(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  (void)rkey, (void)address;
  add(qp, IBV_WC_RDMA_WRITE);
}
static void wr_rdma_write_imm(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t address,
                              __be32 immediate) {
  (void)rkey, (void)address, (void)immediate;
  add(qp, IBV_WC_RDMA_WRITE);
}
static void wr_rdma_read(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  (void)rkey, (void)address;
  add(qp, IBV_WC_RDMA_READ);
}
static void wr_set_sge(struct ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  (void)qp, (void)lkey, (void)address, (void)length;
}
static void wr_set_sge_list(struct ibv_qp_ex* qp, size_t count, const struct ibv_sge* list) {
  (void)qp, (void)count, (void)list;
}
static void wr_set_inline_data(struct ibv_qp_ex* qp, void* address, size_t length) {
  (void)qp, (void)address, (void)length;
}

static struct ibv_qp* create_qp_ex(struct ibv_context* context,
                                   struct ibv_qp_init_attr_ex* attributes) {
  const uint64_t operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                              IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                              IBV_QP_EX_WITH_RDMA_READ;
  const int extended = (attributes->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (attributes->qp_type != IBV_QPT_RC || attributes->sq_sig_all ||
      (extended && (attributes->send_ops_flags & ~operations) != 0))
    return refuse();
  struct pair* pair = calloc(1, sizeof *pair);
  if (pair == NULL) return NULL;
  // The first number is 16. Any small number above 1 would do: 0 and 1 are reserved.
  static uint32_t numbers = 15;
  pair->has_extended = extended;
  pair->verbs.extended = (struct ibv_qp_ex){
      .qp_base = {.context = context,
                  .qp_context = attributes->qp_context,
                  .pd = attributes->pd,
                  .send_cq = attributes->send_cq,
                  .recv_cq = attributes->recv_cq,
                  .srq = attributes->srq,
                  .qp_num = ++numbers,
                  .state = IBV_QPS_RESET,
                  .qp_type = attributes->qp_type},
      .wr_rdma_read = wr_rdma_read,
      .wr_rdma_write = wr_rdma_write,
      .wr_rdma_write_imm = wr_rdma_write_imm,
      .wr_send = wr_send,
      .wr_send_imm = wr_send_imm,
      .wr_set_inline_data = wr_set_inline_data,
      .wr_set_sge = wr_set_sge,
      .wr_set_sge_list = wr_set_sge_list,
      .wr_start = wr_start,
      .wr_complete = wr_complete,
      .wr_abort = wr_abort,
  };
  return &pair->verbs.plain;
}

EXPORT struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* attributes) {
  struct ibv_qp_init_attr_ex extended = {.qp_context = attributes->qp_context,
                                         .send_cq = attributes->send_cq,
                                         .recv_cq = attributes->recv_cq,
                                         .srq = attributes->srq,
                                         .cap = attributes->cap,
                                         .qp_type = attributes->qp_type,
                                         .sq_sig_all = attributes->sq_sig_all,
                                         .comp_mask = IBV_QP_INIT_ATTR_PD,
                                         .pd = pd};
  return create_qp_ex(pd->context, &extended);
}

EXPORT struct ibv_qp_ex* ibv_qp_to_qp_ex(struct ibv_qp* qp) {
  struct pair* pair = (struct pair*)qp;
  return pair->has_extended ? &pair->verbs.extended : NULL;
}

EXPORT int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* attributes, int mask) {
  if ((mask & IBV_QP_STATE) != 0) qp->state = attributes->qp_state;
  return 0;
}

EXPORT int ibv_destroy_qp(struct ibv_qp* qp) {
  free(((struct pair*)qp)->waiting);
  free(((struct pair*)qp)->sent);
  free(qp);
  return 0;
}

EXPORT struct ibv_srq* ibv_create_srq(struct ibv_pd* pd, struct ibv_srq_init_attr* attributes) {
  if (attributes->attr.max_wr > most_waiting) return refuse();
  struct shared_receives* made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  made->verbs =
      (struct ibv_srq){.context = pd->context, .srq_context = attributes->srq_context, .pd = pd};
  return &made->verbs;
}

EXPORT int ibv_destroy_srq(struct ibv_srq* srq) {
  free(srq);
  return 0;
}

// Protection domains and memory

EXPORT struct ibv_pd* ibv_alloc_pd(struct ibv_context* context) {
  struct ibv_pd* pd = calloc(1, sizeof *pd);
  if (pd != NULL) pd->context = context;
  return pd;
}

EXPORT int ibv_dealloc_pd(struct ibv_pd* pd) {
  free(pd);
  return 0;
}

EXPORT struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* address, size_t length,
                                       uint64_t iova, unsigned access) {
  (void)iova, (void)access;
  static uint32_t keys;
  struct ibv_mr* mr = calloc(1, sizeof *mr);
  if (mr == NULL) return NULL;
  ++keys;
  *mr = (struct ibv_mr){.context = pd->context,
                        .pd = pd,
                        .addr = address,
                        .length = length,
                        .lkey = keys,
                        .rkey = keys};
  return mr;
}

EXPORT struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* address, size_t length, int access) {
  return ibv_reg_mr_iova2(pd, address, length, (uintptr_t)address, (unsigned)access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr* mr) {
  free(mr);
  return 0;
}

// Functions that the device does not support

EXPORT struct ibv_comp_channel* ibv_create_comp_channel(struct ibv_context* context) {
  (void)context;
  return refuse();
}
EXPORT struct ibv_ah* ibv_create_ah(struct ibv_pd* pd, struct ibv_ah_attr* attributes) {
  (void)pd, (void)attributes;
  return refuse();
}
static int req_notify_cq(struct ibv_cq* cq, int solicited_only) {
  (void)cq, (void)solicited_only;
  return EOPNOTSUPP;
}

// The device

EXPORT struct ibv_device** ibv_get_device_list(int* count) {
  struct ibv_device** list = calloc(2, sizeof *list);
  if (list != NULL) list[0] = &device;
  if (count != NULL) *count = list != NULL;
  return list;
}

EXPORT void ibv_free_device_list(struct ibv_device** list) { free(list); }

EXPORT const char* ibv_get_device_name(struct ibv_device* of) { return of->name; }

EXPORT __be64 ibv_get_device_guid(struct ibv_device* of) {
  (void)of;
  return 1;
}

static int query_port(struct ibv_context* context, uint8_t port, struct ibv_port_attr* attributes,
                      size_t size) {
  (void)context;
  const struct ibv_port_attr full = {.state = IBV_PORT_ACTIVE,
                                     .max_mtu = IBV_MTU_4096,
                                     .active_mtu = IBV_MTU_4096,
                                     .gid_tbl_len = 1,
                                     .max_msg_sz = 1U << 30,
                                     .pkey_tbl_len = 1,
                                     .lid = 1,
                                     .link_layer = IBV_LINK_LAYER_INFINIBAND};
  if (port != only_port) return EINVAL;
  memset(attributes, 0, size);
  memcpy(attributes, &full, size < sizeof full ? size : sizeof full);
  return 0;
}

EXPORT int _ibv_query_gid_ex(struct ibv_context* context, uint32_t port, uint32_t index,
                             struct ibv_gid_entry* entry, uint32_t flags, size_t size) {
  (void)context;
  const struct ibv_gid_entry full = {
      .gid = {.raw = {0xfe, 0x80, [15] = 1}}, .port_num = only_port, .gid_type = IBV_GID_TYPE_IB};
  if (port != only_port || index != 0 || flags != 0) return EINVAL;
  memcpy(entry, &full, size < sizeof full ? size : sizeof full);
  return 0;
}

EXPORT int ibv_query_device(struct ibv_context* context, struct ibv_device_attr* attributes) {
  (void)context;
  *attributes = (struct ibv_device_attr){.max_mr_size = UINT64_MAX,
                                         .max_qp = 1024,
                                         .max_qp_wr = most_requests,
                                         .max_sge = most_elements,
                                         .max_cq = 1024,
                                         .max_cqe = most_completions,
                                         .max_mr = 1024,
                                         .max_pd = 1024,
                                         .max_qp_rd_atom = 16,
                                         .max_qp_init_rd_atom = 16,
                                         .atomic_cap = IBV_ATOMIC_NONE,
                                         .max_srq = 16,
                                         .max_srq_wr = most_waiting,
                                         .max_srq_sge = 1,
                                         .max_pkeys = 1,
                                         .phys_port_cnt = 1};
  return 0;
}

EXPORT struct ibv_context* ibv_open_device(struct ibv_device* opened) {
  struct verbs_context* context = calloc(1, sizeof *context);
  if (context == NULL) return NULL;
  const int no_events = eventfd(0, EFD_CLOEXEC);
  if (no_events < 0) {
    free(context);
    return NULL;
  }
  *context = (struct verbs_context){.query_port = query_port,
                                    .create_cq_ex = create_cq_ex,
                                    .create_qp_ex = create_qp_ex,
                                    .sz = sizeof *context,
                                    .context = {.device = opened,
                                                .ops = {.poll_cq = poll_cq,
                                                        .req_notify_cq = req_notify_cq,
                                                        .post_srq_recv = post_srq_recv,
                                                        .post_send = post_send,
                                                        .post_recv = post_recv},
                                                .cmd_fd = -1,
                                                .async_fd = no_events,
                                                .num_comp_vectors = 1,
                                                .abi_compat = __VERBS_ABI_IS_EXTENDED}};
  return &context->context;
}

EXPORT int ibv_close_device(struct ibv_context* context) {
  close(context->async_fd);
  free(verbs_get_ctx(context));
  return 0;
}
