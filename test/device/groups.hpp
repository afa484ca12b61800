// SPDX-License-Identifier: Apache-2.0
/// \file
/// Shared code of the group tests.
#pragma once

#include "device.hpp"
#include <verbspp/group.hpp>

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

}  // namespace verbspp::test
