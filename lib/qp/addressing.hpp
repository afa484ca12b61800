// SPDX-License-Identifier: Apache-2.0
/// \file
/// The addresses of a port, and random numbers, such as packet sequence numbers.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/qp/address_offer.hpp>
#include <verbspp/qp/parameters.hpp>

#include <optional>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// The addresses at which peers can reach a port.
struct port_addresses {
  gid address;
  gid_type type;
  gid_index index;
  address_offer offer;  ///< empty on InfiniBand
};

/// Returns the addresses of a port. On Ethernet, if an address was selected by hand (`picked`), the
/// offer contains only that address. Otherwise, it contains the usable addresses of the port, at
/// most `address_offer::capacity`. `address` is the first address of the offer.
/// \errors `not_found` if the port has no usable address; those of `context::query_gid`,
/// `context::query_gid_table` and, unless the address was selected by hand,
/// `interface_table::query`
[[nodiscard]] result<port_addresses> addresses_of(const context& context,
                                                  const port_attributes& port,
                                                  const std::optional<gid_index>& picked,
                                                  const char* operation) noexcept;

/// Returns a random number. Before the kernel's generator is seeded, the number is taken from the
/// clock.
[[nodiscard]] std::uint32_t random_number() noexcept;
/// Returns a random number, so that a packet from an earlier connection is unlikely to match.
[[nodiscard]] packet_sequence_number random_psn() noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
