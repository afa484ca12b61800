// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/work/operations.hpp>
#include <verbspp/work/posting_interface.hpp>
#include <verbspp/work/queue_pair_state.hpp>
#include <verbspp/work/receive_queue_operations.hpp>
#include <verbspp/work/send_queue_operations.hpp>
#include <verbspp/work/transport.hpp>

namespace verbspp {

/// The type of the tag argument of a channel's operations. With a plain queue pair, the program
/// tags its requests in order to recognize their completions. A channel does this itself, so this
/// tag is empty.
struct channel_tag {};

/// The operations that a channel, its scopes and its streams can post. An operation that a UC
/// channel does not support fails at run time (`not_supported`), since channels of all transports
/// have the same type.
///
/// `Poster` has a function `take(operation, channel_tag)`, which is called for operations of both
/// queues. In a `State` before `ready_to_send`, only receive requests are accepted.
template <class Poster, queue_pair_state State = queue_pair_state::ready_to_send>
class channel_operations
    : public send_queue_operations<Poster, transport::rc, State, posting_interface::extended,
                                   channel_tag>,
      public receive_queue_operations<Poster, State, receive_queue_kind::own, channel_tag> {
 public:
  template <class... Arguments>
  void post_bind(Arguments&&...)
      VERBSPP_DETAIL_REFUSED(sizeof...(Arguments) + 1 != 0,
                             "a channel grants its peer memory by leases: on RC, write "
                             "channel.lease(region.window_part<rights>(offset, length).value()), "
                             "which binds and invalidates a window; on UC, channel.lease<rights, "
                             "lease_by::registration>(region, offset, length)");

 protected:
  channel_operations() noexcept = default;
  channel_operations(channel_operations&&) noexcept = default;
  channel_operations& operator=(channel_operations&&) noexcept = default;
  ~channel_operations() = default;
};

}  // namespace verbspp
