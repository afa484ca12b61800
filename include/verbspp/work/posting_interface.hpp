// SPDX-License-Identifier: Apache-2.0
/// \file
/// The choices that a program makes when it builds a queue pair, and that determine how requests
/// are posted.
#pragma once

#include <verbspp/base/detail/because.hpp>

#include <cstdint>

namespace verbspp {

/// The queue from which a queue pair takes its receives.
enum class receive_queue_kind : std::uint8_t {
  own,
  shared,  ///< a `shared_receive_queue`
};

/// The libibverbs interface through which a queue pair's batches are posted.
enum class posting_interface : std::uint8_t {
  standard,  ///< `ibv_post_send` with a linked list, which every device supports
  extended,  ///< `ibv_wr_start` to `ibv_wr_complete`
};

template <posting_interface Posting>
concept PostsExtended = detail::because(
    Posting == posting_interface::extended,
    "this operation exists only in the extended posting interface: use a queue pair that was built "
    "with .extended_posting(); in a scope of a channel, post it outside of post_batch");

template <receive_queue_kind Receives>
concept OwnReceiveQueue =
    detail::because(Receives == receive_queue_kind::own,
                    "this queue pair takes its receives from a shared receive queue: post them "
                    "there");

}  // namespace verbspp
