// SPDX-License-Identifier: Apache-2.0
#include "wrapped.hpp"

#include <chrono>
#include <utility>

namespace {

using namespace verbspp;

[[gnu::always_inline]] inline gather_element element_of(const wrapped_ends& ends) noexcept {
  return ends.outgoing.gather_unchecked(0, message_size);
}

[[gnu::always_inline]] inline auto remote_of(const wrapped_ends& ends) noexcept {
  return ends.remote.slice_unchecked(0, message_size);
}

}  // namespace

bool loop_verbspp_pending(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (; operations > 0; --operations) {
    const auto element = element_of(ends);
    auto work = ends.channel.post_write({.elements = element, .remote = remote_of(ends)});
    if (!work) return false;
    if (!work.assume_value().wait()) return false;
  }
  return true;
}

bool loop_verbspp_blocking(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (; operations > 0; --operations) {
    const auto element = element_of(ends);
    if (!ends.channel.write({.elements = element, .remote = remote_of(ends)})) return false;
  }
  return true;
}

bool loop_verbspp_limited(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (; operations > 0; --operations) {
    const auto element = element_of(ends);
    const auto done = ends.channel.write({.elements = element, .remote = remote_of(ends)},
                                         std::chrono::seconds(5));
    if (!done) return false;
  }
  return true;
}

bool loop_verbspp_scope(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (std::uint64_t first = 0; first < operations; first += batch) {
    const auto done = ends.channel.scope([&](channel_scope& scope) -> result<void> {
      for (int i = 0; i < batch; ++i) {
        const auto element = element_of(ends);
        VERBSPP_TRYV(scope.post_send({.elements = element}));
      }
      return success();
    });
    if (!done) return false;
  }
  return true;
}

bool loop_verbspp_doorbell(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (std::uint64_t first = 0; first < operations; first += batch) {
    const auto done = ends.channel.scope([&](channel_scope& scope) {
      return scope.post_batch<batch>([&](auto& list) {
        for (int i = 0; i < batch; ++i) {
          const auto element = element_of(ends);
          list.post_send({.elements = element});
        }
      });
    });
    if (!done) return false;
  }
  return true;
}

bool loop_verbspp_unsignaled(wrapped_ends& ends, std::uint64_t operations) noexcept {
  const auto done = ends.channel.stream([&](channel_stream& stream) -> result<void> {
    for (std::uint64_t i = 0; i < operations; ++i) {
      const auto element = element_of(ends);
      VERBSPP_TRYV(stream.post_write({.elements = element, .remote = remote_of(ends)}));
    }
    return success();
  });
  return done.has_value();
}

bool loop_verbspp_owned(wrapped_ends& ends, std::uint64_t operations) noexcept {
  for (; operations > 0; --operations) {
    auto work = ends.channel.post_send(std::move(ends.owned));
    if (!work) return false;
    auto done = work.assume_value().wait();
    ends.owned = std::move(done.memory);
    if (!done.result) return false;
  }
  return true;
}

bool loop_verbspp_inbox(wrapped_ends& ends, std::uint64_t operations) noexcept {
  while (operations > 0) {
    const auto arrived = ends.inbox.poll();
    if (!arrived) continue;
    if (!arrived->has_value() || arrived->assume_value().size() != message_size) return false;
    --operations;
  }
  return true;
}
