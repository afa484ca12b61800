// SPDX-License-Identifier: Apache-2.0
/// \file
/// The functions of calling_client that send an answer, which the service inlines.
#pragma once

#include "calls/call_messages.hpp"
#include <verbspp/base/config.hpp>
#include <verbspp/calls/detail/calling_client.hpp>
#include <verbspp/calls/service_options.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/pool/detail/pool_places.hpp>

#include <utility>

namespace verbspp::detail {

VERBSPP_DATA_PATH bool calling_client::send(channel_core& link, message& answer,
                                            service_statistics& counters) noexcept {
  std::byte* const header = answer.bytes().data();
  call_header::set_credits(header, answered_ + 1 + in_flight_);
  const std::uint32_t size = answer.size();
  const bool is_refusal =
      (header[0] & ~call_header::all_flags) == static_cast<std::byte>(call_frame_kind::refusal);
  const kept_memory kept = std::move(answer).give();
  auto& place = static_cast<pool_place&>(*kept.keeper);
  const auto posted = post_frame(link, kept, place.element(size));
  if (posted.has_error()) [[unlikely]] {
    message unsent(&place, size);
    // If posting has failed for a reason other than a full send queue, the answer is dropped:
    // usually, the channel is broken.
    if (posted.assume_error() != error_kind::would_block) return true;
    answer = std::move(unsent);
    return false;
  }
  ++answered_;
  count(is_refusal ? counters.refusals : counters.answers, 1);
  count(counters.answer_bytes, size - call_header::size);
  return true;
}

VERBSPP_DATA_PATH void calling_client::send_or_keep(channel_core& link, message&& answer,
                                                    service_statistics& counters) noexcept {
  if (!send(link, answer, counters)) [[unlikely]]
    deliver(std::move(answer));
}

}  // namespace verbspp::detail
