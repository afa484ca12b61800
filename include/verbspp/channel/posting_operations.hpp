// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/channel/channel_operations.hpp>
#include <verbspp/channel/memory_operations.hpp>

namespace verbspp {

/// All that channels and their scopes post, and give handles of: operations whose memory is named
/// by elements, and those that take their memory with them.
///
/// `Poster` has what `channel_operations` and `memory_operations` ask for.
template <class Poster>
class posting_operations : public channel_operations<Poster>, public memory_operations<Poster> {
 public:
  using channel_operations<Poster>::post_receive;
  using channel_operations<Poster>::post_send;
  using channel_operations<Poster>::post_write;
  using channel_operations<Poster>::post_read;
  using memory_operations<Poster>::post_receive;
  using memory_operations<Poster>::post_send;
  using memory_operations<Poster>::post_write;
  using memory_operations<Poster>::post_read;

 protected:
  posting_operations() noexcept = default;
  posting_operations(posting_operations&&) noexcept = default;
  posting_operations& operator=(posting_operations&&) noexcept = default;
  ~posting_operations() = default;
};

}  // namespace verbspp
