// SPDX-License-Identifier: Apache-2.0
#include <verbspp/work/transport.hpp>

namespace verbspp {

const char* to_string(transport type) noexcept {
  switch (type) {
    case transport::rc:
      return "RC";
    case transport::uc:
      return "UC";
    case transport::ud:
      return "UD";
  }
  return "unknown transport";
}

}  // namespace verbspp
