// SPDX-License-Identifier: Apache-2.0
#include "qp/attribute_name.hpp"
#include <verbspp/qp/attributes.hpp>

namespace verbspp {

const char* to_string(queue_pair_attribute which) noexcept { return detail::attribute_name(which); }

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
