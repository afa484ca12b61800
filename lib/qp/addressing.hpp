// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a queue pair gets where the user picks nothing: an address, a packet sequence number.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/qp/parameters.hpp>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// The GID that peers reach the port by: on Ethernet RoCE v2 before v1, IPv4-mapped before global
/// before link-local.
[[nodiscard]] result<gid_entry> best_gid(const context& context, const port_attributes& port,
                                         const char* operation) noexcept;

/// An unpredictable one.
[[nodiscard]] std::uint32_t random_number() noexcept;
/// An unpredictable one, so that no packet of an earlier connection fits by chance.
[[nodiscard]] packet_sequence_number random_psn() noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
