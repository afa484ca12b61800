// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the channel tests.
#pragma once

#include "device.hpp"
#include <verbspp/channel.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace verbspp::test {

/// Two channels that are connected to each other.
struct channel_pair {
  channel left;
  channel right;
};

[[nodiscard]] inline channel_pair connect_channels(prepared_channel left, prepared_channel right) {
  const endpoint left_end = left.endpoint();
  const endpoint right_end = right.endpoint();
  return {must(std::move(left).handshake(right_end)), must(std::move(right).handshake(left_end))};
}

template <class Builder>
[[nodiscard]] channel_pair connect_channels(const Builder& builder) {
  auto left = must(builder.build());
  return connect_channels(std::move(left), must(builder.build()));
}

/// Connects two channels with read, write and atomic access and otherwise default options.
[[nodiscard]] inline channel_pair connect_channels(const testbed& bed) {
  return connect_channels(bed.domain.build_channel().access(
      access::local_write | access::remote_read | access::remote_write | access::remote_atomic));
}

/// Connects two channels that have short queues, and can send inline.
[[nodiscard]] inline channel_pair connect_short(const testbed& bed) {
  return connect_channels(bed.domain.build_channel()
                              .access(all_rights | access::remote_atomic)
                              .max_send_work_requests(4)
                              .max_receive_work_requests(8)
                              .max_inline_data(64));
}

/// A fixture with both ends, and the objects from which they were created.
struct two_channels {
  const testbed bed{};
  channel_pair ends = connect_channels(bed);
  channel& left = ends.left;
  channel& right = ends.right;
};

/// Polls the channel until no request is outstanding.
inline void finish_all(channel& link, const char* what) {
  wait_until(
      [&] {
        link.poll();
        return link.outstanding() == 0;
      },
      what);
}

using shared_bytes = shared_buffer<all_rights | access::remote_atomic>;

/// Returns shared memory that is filled with the pattern of this seed, or with zeros if the seed is
/// 0.
[[nodiscard]] inline shared_bytes share_bytes(const testbed& bed, std::size_t size,
                                              unsigned seed = 0) {
  auto made =
      must(registered_buffer < all_rights | access::remote_atomic > ::allocate(bed.domain, size));
  const auto content = seed != 0 ? pattern(size, seed) : std::vector<std::byte>(size);
  std::ranges::copy(content, made.begin());
  return must(std::move(made).share());
}
/// True if the memory is filled with the pattern of this seed.
template <class Memory>
[[nodiscard]] bool holds(const Memory& memory, unsigned seed) {
  return std::ranges::equal(memory, pattern(memory.size(), seed));
}

/// All ways in which a channel can wait.
inline constexpr std::array all_modes{wait_mode::spin(), wait_mode::sleep(),
                                      wait_mode::spin_then_sleep(std::chrono::microseconds(20))};

/// A short time limit, mostly for waits that are expected to time out.
inline constexpr std::chrono::milliseconds short_limit{50};
/// The longest time that a call may need to return after its limit has expired. The library
/// promises 100 ms on an idle machine; a test has to allow for other load.
inline constexpr std::chrono::milliseconds soon{5000};

}  // namespace verbspp::test
