// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/work/work_error.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp::detail {

/// The requests that a scope or stream has to see finished.
struct scope_state {
  const wait_limit* limit = nullptr;  ///< null: the channel's default
  scope_state* outer = nullptr;       ///< the scope of the channel that was opened before
  // Requests of the send queue whose numbers follow each other are a run, of which the last one is
  // known here.
  std::uint64_t run_first = 0;
  std::uint64_t sends_end = 0;  ///< behind the number of the last request of the send queue
  std::uint32_t serial = 0;     ///< of the channel's scopes, from 1
  std::uint32_t receives = 0;   ///< on their way
  std::uint32_t posted = 0;     ///< requests with a handle
  std::uint32_t taken = 0;      ///< whose results were asked for
  // Of the requests whose results nobody took:
  std::uint32_t failed = 0;
  std::uint32_t flushed = 0;  ///< because of another failure
  bool is_stream = false;

  [[nodiscard]] std::uint32_t left() const noexcept { return posted - taken; }
};

/// What a channel knows of a request of the send queue besides its number, if there is anything: it
/// keeps memory, or is the last of a run that its scope has broken off. Of another number, it is an
/// old one.
struct send_record {
  std::uint64_t number = 0;
  scope_state* scope = nullptr;  ///< of the run; null: none ends here
  std::uint64_t run_first = 0;
  kept_memory memory{};
  bool is_watched = false;  ///< its memory is hidden from the program
  bool is_guarded = false;  ///< its memory is only to be read by the program
};

/// What a channel knows of one receive, from its post until its result was taken. One cache line.
struct alignas(64) receive_slot {
  enum class state : std::uint8_t { free, posted, done };
  /// What has to be seen to besides the result; of a request that its handle alone waits for, none.
  enum note : std::uint8_t {
    in_scope = 1U << 0,
    unheld = 1U << 1,   ///< nobody will take the result
    keeping = 1U << 2,  ///< `memory` is to be let go
    watched = 1U << 3,  ///< its memory is hidden from the program
    lost = 1U << 4,     ///< the device did not let go of its memory
  };

  std::uint64_t id;    ///< the slot's index below a count of its uses; of `wr_id`
  scope_state* scope;  ///< whose it is, if `in_scope`
  kept_memory memory;
  std::uint32_t next;  ///< the slot behind this one of the free ones

  // What came of it.
  std::uint32_t status;
  std::uint32_t vendor_code;
  std::uint32_t opcode;
  std::uint32_t byte_count;
  unsigned flags;
  __be32 immediate;

  state is;
  std::uint8_t notes;
  std::uint16_t connection;  ///< the lower bits of its generation, if it has failed
};

static_assert(sizeof(receive_slot) == 64 || sizeof(void*) != 8);

/// Which requests of the send queue a connection has lost, for handles that still exist.
struct lost_sends {
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::uint64_t first = none;
  std::uint64_t end = none;
  std::uint64_t root = none;  ///< the one that failed by itself; the others were flushed
  std::uint32_t status = 0;
  std::uint32_t vendor_code = 0;
  std::uint32_t queue_pair = 0;
  owned<lost_sends> earlier{};
};

/// The serials of scopes are counted modulo this. One that has the same as another is so many
/// scopes later; a handle kept as long finds its result where it would be told that it is too late.
inline constexpr std::uint32_t scope_serials = std::uint32_t{1} << 23;

/// What a handle knows of its request. Two words, which calls take in registers: compilers keep
/// what has to be in memory for one call, however rare, there for all.
struct request {
  constexpr request() noexcept : number(0) {}

  union {
    std::uint64_t number;  ///< of the send queue, from 1
    receive_slot* slot;    ///< of the receive queue
  };
  std::uint32_t bytes = 0;       ///< of an RDMA read
  std::uint32_t scope : 23 = 0;  ///< the serial of its scope; 0: none
  bool keeps : 1 = false;        ///< it has none of the program's memory, so nobody has to wait
  work_operation operation : 8 = work_operation::send;
};

static_assert(sizeof(request) == 16 || sizeof(void*) != 8);

}  // namespace verbspp::detail
