// SPDX-License-Identifier: Apache-2.0
/// \file
/// The path that packets take to a peer. The verbs documentation calls it an address vector.
#pragma once

#include <verbspp/base/bounded.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/gid.hpp>
#include <verbspp/device/port.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <iosfwd>
#include <optional>

namespace verbspp {

namespace detail {
struct service_level_traits {
  using value_type = std::uint8_t;
  static constexpr value_type minimum = 0, maximum = 15;
  static constexpr const char* name = "service level (0..15)";
};
struct hop_limit_traits {
  using value_type = std::uint8_t;
  static constexpr value_type minimum = 0, maximum = 255;
  static constexpr const char* name = "hop limit (0..255)";
};
struct traffic_class_traits {
  using value_type = std::uint8_t;
  static constexpr value_type minimum = 0, maximum = 255;
  static constexpr const char* name = "traffic class (0..255)";
};
struct flow_label_traits {
  using value_type = std::uint32_t;
  static constexpr value_type minimum = 0, maximum = 0xfffff;
  static constexpr const char* name = "flow label (20 bits)";
};
struct source_path_bits_traits {
  using value_type = std::uint8_t;
  static constexpr value_type minimum = 0, maximum = 127;
  static constexpr const char* name = "source path bits (0..127)";
};
}  // namespace detail

/// The class of service. InfiniBand switches map it to a virtual lane; on Ethernet, it selects the
/// PFC priority.
using service_level = bounded<detail::service_level_traits>;
/// The hop limit of the GRH, which each router on the way decrements. Packets whose hop limit is 0
/// or 1 stay in the subnet.
using hop_limit = bounded<detail::hop_limit_traits>;
/// The traffic class of the GRH; with RoCE v2, it holds the DSCP and ECN bits.
using traffic_class = bounded<detail::traffic_class_traits>;
/// The flow label of the GRH. On RoCE v2, hardware derives the UDP source port from it, unless it
/// is 0. Switches use that port to distribute flows over several links.
using flow_label = bounded<detail::flow_label_traits>;
/// The low bits of the source LID, if the subnet manager assigned a range of LIDs to the port.
using source_path_bits = bounded<detail::source_path_bits_traits>;

/// The fields of a global route header (GRH), in which the addresses are GIDs.
struct global_route {
  gid destination{};
  gid_index source{};  ///< the index of the sender's GID in its port's table
  verbspp::hop_limit hop_limit = 64;
  verbspp::traffic_class traffic_class{};
  verbspp::flow_label flow_label{};
};

/// A path over InfiniBand. Within the subnet, a LID is enough; to reach other subnets and
/// multicast groups, packets need a GRH.
struct infiniband_path {
  lid destination{};
  verbspp::service_level service_level{};
  verbspp::source_path_bits source_path_bits{};
  ibv_rate static_rate = IBV_RATE_MAX;  ///< the slowest link's rate, if it is below the port's rate
  std::optional<global_route> route{};
};

/// A path over Ethernet (RoCE), where every destination is addressed by its GID.
struct roce_path {
  global_route route{};
  verbspp::service_level service_level{};
  ibv_rate static_rate = IBV_RATE_MAX;
};

/// A path of either kind, for functions that accept both. A port accepts only paths for its own
/// link layer.
class path {
 public:
  path(const infiniband_path& way) noexcept;
  path(const roce_path& way) noexcept;

  [[nodiscard]] enum link_layer link_layer() const noexcept { return link_layer_; }
  [[nodiscard]] bool is_global() const noexcept { return native_.is_global != 0; }
  /// Returns this path as a libibverbs address vector, with `port` as the local port.
  [[nodiscard]] ibv_ah_attr native(port_number port) const noexcept {
    ibv_ah_attr native = native_;
    native.port_num = port.value();
    return native;
  }

 private:
  ibv_ah_attr native_{};
  enum link_layer link_layer_;
};

std::ostream& operator<<(std::ostream& out, const path& way);

namespace detail {
/// Checks that a port can send along the path: the path must be for the port's link layer, and must
/// have a destination address.
/// \param port the link layer of the port
[[nodiscard]] result<void> check_path(const path& way, link_layer port,
                                      const char* operation) noexcept;
}  // namespace detail

}  // namespace verbspp
