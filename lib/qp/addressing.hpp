// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a queue pair gets where the user picks nothing: an address, a packet sequence number.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/qp/address_offer.hpp>
#include <verbspp/qp/parameters.hpp>

#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// What peers reach a port by.
struct port_addresses {
  gid address;
  gid_type type;
  gid_index index;
  address_offer offer;  ///< empty on InfiniBand
};

/// On Ethernet all that the port offers, the first one being its address, or the one that was
/// picked by hand alone.
/// \errors `not_found` if the port has no usable address, or none at the index
[[nodiscard]] result<port_addresses> addresses_of(const context& context,
                                                  const port_attributes& port,
                                                  const std::optional<gid_index>& picked,
                                                  const char* operation) noexcept;

/// An unpredictable one.
[[nodiscard]] std::uint32_t random_number() noexcept;
/// An unpredictable one, so that no packet of an earlier connection fits by chance.
[[nodiscard]] packet_sequence_number random_psn() noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
