// SPDX-License-Identifier: Apache-2.0
// A program as users write it: each operation of a connection is a function, and another file calls
// these functions in sequence. This is the C version (usual.c), with the checks of a careful
// programmer: offsets and lengths at both ends, room in the send queue, and each completion.
// usual.hpp declares the corresponding functions in verbspp.
#pragma once

#include <infiniband/verbs.h>

#ifdef __cplusplus
#include <cstddef>
#include <cstdint>
extern "C" {
#else
#include <stddef.h>
#include <stdint.h>
#endif

enum { clients_of_hub = 64, slots_of_hub = 16, signal_every = 16, most_in_flight = 64 };

// The part of a buffer to write, and the offset in the peer's memory to write it to.
struct piece {
  size_t offset;
  size_t length;
  size_t remote_offset;
};

struct c_remote {
  uint64_t address;
  uint64_t length;
  uint32_t rkey;
};

// A connection. Its requests are numbered from 0, and complete in order: `done` to `posted - 1` are
// in flight. The functions below that return an int return 0 or an errno value. They return EIO if
// polling or a request has failed; for a request of a connection, `status` has the reason.
struct c_link {
  struct ibv_qp* qp;
  struct ibv_cq* cq;
  uint64_t posted;
  uint64_t done;
  uint64_t limit;  // the longest wait, in nanoseconds
  enum ibv_wc_status status;
};

// Memory with a reference count. Releasing the last reference deregisters the memory.
struct c_shared {
  struct ibv_mr* memory;
  unsigned references;
};

// Places of one size in one buffer. The first `available` entries of `free` are the numbers of the
// unused places.
struct c_pool {
  struct ibv_mr* memory;
  uint32_t place_size;
  uint32_t available;
  uint32_t* free;
};

// The receives of one queue pair. Each receive uses a place of the buffer, and has the number of
// this place as its `wr_id`.
struct c_inbox {
  struct ibv_qp* qp;
  struct ibv_cq* cq;
  struct ibv_mr* places;
  uint32_t place_size;
  uint64_t limit;
};

struct c_client {
  struct ibv_qp* qp;
  uint64_t messages;
  uint64_t bytes;
};

enum { rows_of_table = 256 };

// Queue pairs that share receives and a completion queue. `table` is a hash table of clients with
// linear probing: the search for a queue pair number starts at the row given by its lower bits, and
// ends at an empty row.
struct c_hub {
  struct ibv_srq* srq;
  struct ibv_cq* cq;
  struct ibv_mr* places;
  uint32_t place_size;
  uint64_t limit;
  struct c_client* table[rows_of_table];
};

int c_write(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
            const struct piece* piece);
int c_write_within(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                   const struct piece* piece);
int c_post_and_wait(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                    const struct piece* piece);
int c_write_all(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                const struct piece* pieces, size_t count, uint64_t* requests);
int c_write_list(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                 const struct piece* pieces, size_t count);
int c_write_stream(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                   const struct piece* pieces, size_t count, size_t rounds);
int c_write_owned(struct c_link* link, struct ibv_mr** from, const struct c_remote* to,
                  size_t remote_offset);
int c_write_shared(struct c_link* link, struct c_shared* from, const struct c_remote* to,
                   const struct piece* piece);
int c_send_message(struct c_link* link, struct c_pool* pool, const void* bytes, size_t length);
int c_put_record(struct c_link* link, const struct ibv_mr* from, const struct c_remote* to,
                 const struct piece* piece);
int c_receive(struct c_inbox* from, uint64_t* value);
int c_serve(struct c_hub* hub, size_t* served);

// Called once, before the benchmark begins: these post receives for the places 0 to `count` - 1.
int c_fill_inbox(struct c_inbox* inbox, uint32_t count);
int c_fill_hub(struct c_hub* hub, uint32_t count);

void c_add_client(struct c_hub* hub, struct c_client* client);

#ifdef __cplusplus
}
#endif
