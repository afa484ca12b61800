// SPDX-License-Identifier: Apache-2.0
/// \file
/// How a request is tracked, apart from what it does: the operation says that.
#pragma once

#include <cstdint>

namespace verbspp {

/// How a request of the send queue is tracked: `{.id = 7}`.
struct work_tag {
  std::uint64_t id = 0;  ///< comes back as the completion's `wr_id()`
  /// Ask for a completion. Without one, the request's place in the send queue is free again only
  /// when a later, signaled request has completed; a failure completes it in any case.
  bool signaled = true;
};

/// How a receive is tracked. It always has a completion.
struct receive_tag {
  std::uint64_t id = 0;  ///< comes back as the completion's `wr_id()`
};

}  // namespace verbspp
