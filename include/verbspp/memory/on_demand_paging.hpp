// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/flags.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/context.hpp>

#include <infiniband/verbs.h>

#include <cstdint>

namespace verbspp {

/// The operations that can use memory that is not pinned, with the values of
/// `ibv_odp_transport_cap_bits`.
enum class on_demand_use : std::uint32_t {
  send = IBV_ODP_SUPPORT_SEND,
  receive = IBV_ODP_SUPPORT_RECV,
  write = IBV_ODP_SUPPORT_WRITE,
  read = IBV_ODP_SUPPORT_READ,
  atomic = IBV_ODP_SUPPORT_ATOMIC,
  shared_receive = IBV_ODP_SUPPORT_SRQ_RECV,
};

template <>
inline constexpr bool is_flag_bit<on_demand_use> = true;

/// A device's support for memory that was registered with access::on_demand.
struct on_demand_paging {
  bool supported = false;
  /// True if the whole address space can be one region.
  bool whole_address_space = false;
  flags<on_demand_use> reliable_connection{};
  flags<on_demand_use> unreliable_connection{};
  flags<on_demand_use> unreliable_datagram{};

  /// Queries the device (`ibv_query_device_ex`). It is not an error if the device lacks support;
  /// `supported` is then false.
  /// \errors `driver`; `invalid_input` if the context was moved from
  [[nodiscard]] static result<on_demand_paging> query(const context& device) noexcept;
};

}  // namespace verbspp
