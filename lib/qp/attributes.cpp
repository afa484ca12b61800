// SPDX-License-Identifier: Apache-2.0
#include <verbspp/qp/attributes.hpp>

namespace verbspp {

const char* to_string(attribute which) noexcept {
  switch (which) {
    case attribute::current_state:
      return "current state";
    case attribute::notify_when_drained:
      return "notify when drained";
    case attribute::access:
      return "access flags";
    case attribute::pkey_index:
      return "pkey index";
    case attribute::port:
      return "port";
    case attribute::qkey:
      return "queue key";
    case attribute::path:
      return "path";
    case attribute::path_mtu:
      return "path MTU";
    case attribute::ack_timeout:
      return "ACK timeout";
    case attribute::ack_retry_count:
      return "ACK retry count";
    case attribute::rnr_retry_count:
      return "RNR retry count";
    case attribute::receive_psn:
      return "receive PSN";
    case attribute::max_reads_as_initiator:
      return "max reads as initiator";
    case attribute::alternate_path:
      return "alternate path";
    case attribute::min_rnr_timer:
      return "min RNR NAK timer";
    case attribute::send_psn:
      return "send PSN";
    case attribute::max_reads_as_target:
      return "max reads as target";
    case attribute::path_migration:
      return "path migration state";
    case attribute::destination:
      return "destination queue pair";
    case attribute::rate_limit:
      return "rate limit";
  }
  return "unknown attribute";
}

const char* to_string(path_migration_state state) noexcept {
  switch (state) {
    case path_migration_state::migrated:
      return "migrated";
    case path_migration_state::rearm:
      return "rearm";
    case path_migration_state::armed:
      return "armed";
  }
  return "unknown path migration state";
}

}  // namespace verbspp
