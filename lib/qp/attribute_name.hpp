// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/qp/attributes.hpp>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// The name of an attribute. Unlike `to_string`, it can be used in constant expressions.
[[nodiscard]] constexpr const char* attribute_name(queue_pair_attribute which) noexcept {
  switch (which) {
    case queue_pair_attribute::current_state:
      return "current state";
    case queue_pair_attribute::notify_when_drained:
      return "notify when drained";
    case queue_pair_attribute::access:
      return "access flags";
    case queue_pair_attribute::pkey_index:
      return "pkey index";
    case queue_pair_attribute::port:
      return "port";
    case queue_pair_attribute::qkey:
      return "queue key";
    case queue_pair_attribute::path:
      return "path";
    case queue_pair_attribute::path_mtu:
      return "path MTU";
    case queue_pair_attribute::ack_timeout:
      return "ACK timeout";
    case queue_pair_attribute::ack_retry_count:
      return "ACK retry count";
    case queue_pair_attribute::rnr_retry_count:
      return "RNR retry count";
    case queue_pair_attribute::receive_psn:
      return "receive PSN";
    case queue_pair_attribute::max_reads_as_initiator:
      return "max reads as initiator";
    case queue_pair_attribute::alternate_path:
      return "alternate path";
    case queue_pair_attribute::min_rnr_timer:
      return "min RNR NAK timer";
    case queue_pair_attribute::send_psn:
      return "send PSN";
    case queue_pair_attribute::max_reads_as_target:
      return "max reads as target";
    case queue_pair_attribute::path_migration:
      return "path migration state";
    case queue_pair_attribute::destination:
      return "destination queue pair";
    case queue_pair_attribute::rate_limit:
      return "rate limit";
  }
  return "unknown attribute";
}

}  // namespace verbspp::detail
#pragma GCC visibility pop
