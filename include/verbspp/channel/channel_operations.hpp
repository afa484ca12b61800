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

/// How requests of a channel are tracked is the channel's business.
struct channel_tag {};

/// All that a channel takes, for the channel itself, its scopes and its streams: the one list of
/// operations. What a channel of transport UC does not carry is an error there (`not_supported`),
/// since a channel is one type whatever its transport.
///
/// `Poster` has `take(operation, channel_tag)` for operations of both queues. In a `State` before
/// `ready_to_send` it takes receives only.
template <class Poster, queue_pair_state State = queue_pair_state::ready_to_send>
class channel_operations
    : public send_queue_operations<Poster, transport::rc, State, posting_interface::extended,
                                   channel_tag>,
      public receive_queue_operations<Poster, State, receive_queue_kind::own, channel_tag> {
 public:
  template <class... Arguments>
  void post_bind(Arguments&&...) VERBSPP_DETAIL_REFUSED(
      sizeof...(Arguments) + 1 != 0,
      "a channel grants its peer memory by leases, which bind windows and take them back: write "
      "channel.lease(region.window_part<rights>(offset, length).value())");

 protected:
  channel_operations() noexcept = default;
  channel_operations(channel_operations&&) noexcept = default;
  channel_operations& operator=(channel_operations&&) noexcept = default;
  ~channel_operations() = default;
};

}  // namespace verbspp
