// SPDX-License-Identifier: Apache-2.0
#include <verbspp/device/path.hpp>

#include <ostream>
#include <string>

namespace verbspp {

namespace {

ibv_global_route native_route(const global_route& route) noexcept {
  return {.dgid = route.destination.native(),
          .flow_label = route.flow_label.value(),
          .sgid_index = route.source.value(),
          .hop_limit = route.hop_limit.value(),
          .traffic_class = route.traffic_class.value()};
}

}  // namespace

path::path(const infiniband_path& way) noexcept : link_layer_(link_layer::infiniband) {
  native_.dlid = way.destination.value();
  native_.sl = way.service_level.value();
  native_.src_path_bits = way.source_path_bits.value();
  native_.static_rate = static_cast<std::uint8_t>(way.static_rate);
  if (way.route) {
    native_.is_global = 1;
    native_.grh = native_route(*way.route);
  }
}

path::path(const roce_path& way) noexcept : link_layer_(link_layer::ethernet) {
  native_.sl = way.service_level.value();
  native_.static_rate = static_cast<std::uint8_t>(way.static_rate);
  native_.is_global = 1;
  native_.grh = native_route(way.route);
}

std::ostream& operator<<(std::ostream& out, const path& way) {
  const ibv_ah_attr native = way.native(port_number{});
  out << to_string(way.link_layer());
  if (way.link_layer() == link_layer::infiniband) out << ", LID " << std::to_string(native.dlid);
  if (way.is_global())
    out << ", GID " << gid::from_native(native.grh.dgid) << " from GID index "
        << std::to_string(native.grh.sgid_index) << ", hop limit "
        << std::to_string(native.grh.hop_limit) << ", traffic class "
        << std::to_string(native.grh.traffic_class);
  return out << ", service level " << std::to_string(native.sl);
}

result<void> detail::check_path(const path& way, link_layer port, const char* operation) noexcept {
  if (way.link_layer() != port)
    return error(error_kind::mismatch, operation,
                 port == link_layer::ethernet
                     ? "the path is an infiniband_path, but this port is Ethernet: use a roce_path"
                     : "the path is a roce_path, but this port is InfiniBand: use an "
                       "infiniband_path");
  const ibv_ah_attr native = way.native(port_number{});
  if (way.is_global() && gid::from_native(native.grh.dgid).is_zero())
    return error(
        error_kind::invalid_input, operation,
        "the path's destination GID is missing (all zeros): set the GID of the peer or group");
  if (port == link_layer::infiniband && native.dlid == 0)
    return error(error_kind::invalid_input, operation,
                 "the path's destination LID is missing: set the one that the subnet manager has "
                 "assigned to the peer's port, or to the multicast group");
  return success();
}

}  // namespace verbspp
