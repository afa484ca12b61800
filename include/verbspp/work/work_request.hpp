// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/remote_word.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/work/address_handle.hpp>
#include <verbspp/work/immediate_data.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace verbspp {

// The requests are plain values, written at the call: `post_send({.id = 7, .elements = part})`. The
// elements are viewed and have to live until the call returns, the memory behind them until the
// work has completed.

/// Takes the elements' bytes to the peer, into the receive that it posted first.
struct send_request {
  std::uint64_t id = 0;  ///< comes back as the completion's `wr_id()`
  gather_list elements{};
  std::optional<immediate_data> immediate{};
  /// Ask for a completion. Without one, the request's place in the send queue is free again only
  /// when a later, signaled request has completed.
  bool signaled = true;
  bool solicited = false;  ///< wakes a peer that waits for solicited events only
  bool fenced = false;     ///< starts only when the RDMA reads posted before it have finished
};

/// Takes the elements' bytes to a UD queue pair, into the receive that was posted there first.
struct datagram_request {
  std::uint64_t id = 0;
  gather_list elements{};
  datagram_destination to;
  std::optional<immediate_data> immediate{};
  bool signaled = true;
  bool solicited = false;
};

/// Provides memory for one message of the peer's.
struct receive_request {
  std::uint64_t id = 0;
  scatter_list elements{};
};

/// Takes the elements' bytes into the peer's memory; only with immediate data does the peer notice,
/// and needs a receive for it.
struct write_request {
  std::uint64_t id = 0;
  gather_list elements{};
  remote_destination remote;  ///< at least as long as the elements together
  std::optional<immediate_data> immediate{};
  bool signaled = true;
  bool solicited = false;  ///< only with immediate data
  bool fenced = false;
};

/// Fills the elements from the peer's memory.
struct read_request {
  std::uint64_t id = 0;
  scatter_list elements{};
  remote_source remote;  ///< at least as long as the elements together
  bool signaled = true;
  bool fenced = false;
};

/// Replaces the remote word by `desired` if it equals `expected`; either way the result is the
/// value that it had before, in host byte order.
struct compare_and_swap_request {
  std::uint64_t id = 0;
  scatter_element result;  ///< 8 bytes
  remote_word remote;
  std::uint64_t expected = 0;
  std::uint64_t desired = 0;
  bool signaled = true;
  bool fenced = false;
};

/// Adds to the remote word; the result is the value that it had before, in host byte order.
struct fetch_and_add_request {
  std::uint64_t id = 0;
  scatter_element result;  ///< 8 bytes
  remote_word remote;
  std::uint64_t addend = 0;
  bool signaled = true;
  bool fenced = false;
};

/// As `send_request`, and makes an rkey of the peer's void before the peer sees the completion,
/// which names it. What the peer granted by that rkey (a memory window, or a region where the
/// device can) cannot be used any more.
struct send_with_invalidate_request {
  std::uint64_t id = 0;
  gather_list elements{};
  std::uint32_t rkey;  ///< the peer's
  bool signaled = true;
  bool solicited = false;
  bool fenced = false;
};

/// Binds a memory window; which one, and to what, are arguments of their own.
struct bind_request {
  std::uint64_t id = 0;
  bool signaled = true;
  bool fenced = false;
};

/// Makes an rkey of this side void.
struct local_invalidate_request {
  std::uint64_t id = 0;
  std::uint32_t rkey;
  bool signaled = true;
  bool fenced = false;
};

}  // namespace verbspp
