// SPDX-License-Identifier: Apache-2.0
#include <verbspp/channel/channel_id.hpp>

#include <ostream>

namespace verbspp {

std::ostream& operator<<(std::ostream& out, const channel_id& id) {
  return out << id.index << '.' << id.generation;
}

}  // namespace verbspp
