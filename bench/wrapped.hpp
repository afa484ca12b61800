// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "loops.h"
#include <verbspp/channel.hpp>
#include <verbspp/verbspp.hpp>

#include <cstdint>

/// The objects of the verbspp loops, and memory for the C loops. `raw_ends` refers to the same
/// libibverbs objects, except those of the channels and the inbox.
struct wrapped_ends {
  using extended_queue_type = verbspp::extended_completion_queue<verbspp::completion_features{}>;

  verbspp::connected_queue_pair<verbspp::transport::rc> queue_pair;
  verbspp::completion_queue queue;
  verbspp::connected_queue_pair<verbspp::transport::rc, verbspp::receive_queue_kind::own,
                                verbspp::posting_interface::extended>
      extended_pair;
  extended_queue_type extended_queue;
  verbspp::memory_region<> outgoing;
  verbspp::memory_region<verbspp::access::local_write> incoming;
  verbspp::remote_memory<verbspp::access::remote_write> remote;
  const volatile std::uint32_t* length;  ///< the length of a message, known only at run time
  verbspp::channel channel;
  verbspp::channel receiver;
  verbspp::inbox inbox;
  verbspp::registered_buffer<> owned;   ///< a buffer for one message, owned by requests
  verbspp::registered_buffer<> places;  ///< memory for the receives of the C loops
};

// The verbspp versions of the loops of loops.h.
extern "C" {
bool loop_verbspp_write(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_send(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_receive(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_list(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_extended(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_checked(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_stream(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_pending(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_blocking(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_limited(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_scope(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_doorbell(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_unsignaled(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_owned(wrapped_ends& ends, std::uint64_t operations) noexcept;
bool loop_verbspp_inbox(wrapped_ends& ends, std::uint64_t operations) noexcept;

/// A write that allocates memory in each operation. The measurement has to detect that it is too
/// expensive.
bool loop_planted_write(wrapped_ends& ends, std::uint64_t operations) noexcept;
}
