// SPDX-License-Identifier: Apache-2.0
#include "device/usable.hpp"
#include <verbspp/memory/on_demand_paging.hpp>

#include <cerrno>

namespace verbspp {

result<on_demand_paging> on_demand_paging::query(const context& device) noexcept {
  constexpr const char* operation = "ibv_query_device_ex";
  VERBSPP_TRYV(detail::check_usable(operation, device));
  ibv_device_attr_ex attributes{};
  const int errnum =
      detail::errno_of(ibv_query_device_ex(device.native_handle(), nullptr, &attributes));
  // A driver without the extended query does not support on-demand paging either.
  if (errnum == ENOSYS || errnum == EOPNOTSUPP) return on_demand_paging{};
  if (errnum != 0) return error::from_errno(errnum, operation);
  const ibv_odp_caps& can = attributes.odp_caps;
  return on_demand_paging{
      .supported = (can.general_caps & IBV_ODP_SUPPORT) != 0,
      .whole_address_space = (can.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0,
      .reliable_connection = flags<on_demand_use>::from_bits(can.per_transport_caps.rc_odp_caps),
      .unreliable_connection = flags<on_demand_use>::from_bits(can.per_transport_caps.uc_odp_caps),
      .unreliable_datagram = flags<on_demand_use>::from_bits(can.per_transport_caps.ud_odp_caps)};
}

}  // namespace verbspp
