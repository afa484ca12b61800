// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the group tests.
#pragma once

#include "device.hpp"
#include <verbspp/group.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace verbspp::test {

/// Returns the endpoints to which member `number` must connect.
[[nodiscard]] inline std::vector<endpoint> remotes_of(const std::vector<prepared_group>& all,
                                                      std::uint32_t number) {
  std::vector<endpoint> remotes;
  for (const prepared_group& each : all) remotes.push_back(each.endpoint(number));
  return remotes;
}

/// Creates `count` groups in one process. Each of them has all of the groups as its peers,
/// including itself. `prepare()` returns a group that is prepared for `count` peers.
template <class Prepare>
[[nodiscard]] std::vector<group> connect_groups(std::uint32_t count, Prepare prepare) {
  std::vector<prepared_group> prepared;
  for (std::uint32_t i = 0; i < count; ++i) prepared.push_back(must(prepare()));
  std::vector<std::vector<endpoint>> remotes;
  for (std::uint32_t i = 0; i < count; ++i) remotes.push_back(remotes_of(prepared, i));
  std::vector<group> made;
  for (std::uint32_t i = 0; i < count; ++i)
    made.push_back(must(std::move(prepared[i]).handshake(remotes[i])));
  return made;
}
[[nodiscard]] inline std::vector<group> connect_groups(const testbed& bed, std::uint32_t count,
                                                       const group_options& options = {}) {
  return connect_groups(count, [&] {
    return prepare_group(
        bed.domain.build_channel().max_send_work_requests(8).max_receive_work_requests(8), count,
        options);
  });
}

/// The number of members of the group in these fixtures.
inline constexpr std::uint32_t group_size = 4;
/// The length of a part of a buffer, and of most messages in the group tests.
inline constexpr std::size_t part_size = 64;

/// Returns the bytes of one part of the buffer.
[[nodiscard]] inline std::vector<std::byte> part_of(const buffer<>& of, std::size_t place) {
  const auto first = of.bytes().begin() + static_cast<std::ptrdiff_t>(place * part_size);
  return {first, first + static_cast<std::ptrdiff_t>(part_size)};
}

/// Returns a buffer for each group, with a part for each of its peers.
[[nodiscard]] inline std::vector<buffer<>> buffers(const testbed& bed) {
  std::vector<buffer<>> made;
  for (std::uint32_t i = 0; i < group_size; ++i)
    made.emplace_back(bed.domain, group_size * part_size);
  return made;
}

/// A fixture with the members of a group.
struct four_members {
  const testbed bed{};
  std::vector<group> all = connect_groups(bed, group_size);
};
/// A fixture with the members of a group, and memory for each of them.
struct members_with_memory : four_members {
  std::vector<buffer<>> memory = buffers(bed);
};

}  // namespace verbspp::test
