// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/wait_limit.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp::detail {

/// The requests that a scope or stream has to see finished.
struct scope_state {
  const wait_limit* limit = nullptr;  ///< null: the channel's default
  std::uint32_t outstanding = 0;      ///< on their way
  std::uint32_t held = 0;             ///< whose handles exist
  std::uint32_t dropped = 0;          ///< whose handles went without anybody asking for the result
  // Of the requests whose results nobody took:
  std::uint32_t failed = 0;
  std::uint32_t flushed = 0;  ///< because of another failure
};

/// What a channel knows of one request, from its post until its result was taken. One cache line.
struct alignas(64) work_slot {
  enum class state : std::uint8_t { free, posted, done };
  /// What has to be seen to besides the result; of a request that its handle alone waits for, none.
  enum note : std::uint8_t {
    in_scope = 1U << 0,
    unheld = 1U << 1,    ///< nobody will take the result
    owning = 1U << 2,    ///< its handle has the memory, and waits where it is dropped
    keeping = 1U << 3,   ///< `memory` is to be let go
    watched = 1U << 4,   ///< its memory is hidden from the program
    over = 1U << 5,      ///< the scope has ended: the result is not to be had any more
    orphaned = 1U << 6,  ///< the channel is gone
    lost = 1U << 7,      ///< the device did not let go of its memory
  };

  std::uint64_t id;    ///< the request's `wr_id`: the slot's index below a count of its uses
  scope_state* scope;  ///< whose it is, if `in_scope`
  kept_memory memory;
  std::uint32_t next;  ///< the slot behind this one: of the free ones, or in the send queue

  // What came of it.
  std::uint32_t status;
  std::uint32_t vendor_code;
  std::uint32_t opcode;
  std::uint32_t byte_count;
  unsigned flags;
  __be32 immediate;

  state is;
  std::uint8_t notes;
  std::uint8_t operation;  ///< a `work_operation`
};

static_assert(sizeof(work_slot) == 64 || sizeof(void*) != 8);

}  // namespace verbspp::detail
