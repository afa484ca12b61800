// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "input.hpp"
#include "machine/flow_filter.hpp"

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fuzz {

/// The multicast group to which some frames are sent.
inline constexpr std::array<std::uint8_t, 6> group_of_frames{3, 0, 0, 0, 0, 1};

/// Returns an Ethernet frame in which each header has the type that the previous one names, except
/// where the input changes or truncates the frame.
std::vector<std::uint8_t> make_frame(input& said);

/// A flow rule for some headers of a frame, which the input chooses. The input may also replace the
/// values or the masks, so that the rule does not match the frame.
class frame_rule {
 public:
  // These bits of the first input byte select which parts to match.
  static constexpr std::uint8_t asks_link = 8;
  static constexpr std::uint8_t asks_internet = 16;
  static constexpr std::uint8_t asks_transport = 32;

  frame_rule(input& said, std::span<const std::uint8_t> frame);

  ibv_flow_attr& attributes() noexcept { return *reinterpret_cast<ibv_flow_attr*>(bytes_.data()); }

 private:
  void add(const void* specification, std::size_t size);
  template <typename Specification, typename Filter>
  void ask(input& said, ibv_flow_spec_type type, Specification wanted, const Filter& has);

  void ask_for_action(input& said);
  void ask_for_transport(input& said, const softverbs::frame_headers& has);

  std::vector<std::uint8_t> bytes_;
};

}  // namespace fuzz
