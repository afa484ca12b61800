// SPDX-License-Identifier: Apache-2.0
/// \file
/// Choices of the builder that decide how a queue pair takes work.
#pragma once

#include <verbspp/base/detail/because.hpp>

#include <cstdint>

namespace verbspp {

/// Where a queue pair takes its receives from.
enum class receive_queue_kind : std::uint8_t {
  own,
  shared,  ///< a `shared_receive_queue`
};

/// How a queue pair's batches are posted.
enum class posting_interface : std::uint8_t {
  standard,  ///< `ibv_post_send` of a linked list, which every device has
  extended,  ///< `ibv_wr_start` to `ibv_wr_complete`
};

template <posting_interface Posting>
concept PostsExtended =
    detail::because(Posting == posting_interface::extended,
                    "this operation exists in the extended posting interface only: build the queue "
                    "pair with .extended_posting()");

template <receive_queue_kind Receives>
concept OwnReceiveQueue =
    detail::because(Receives == receive_queue_kind::own,
                    "this queue pair takes its receives from a shared receive queue: post them "
                    "there");

}  // namespace verbspp
