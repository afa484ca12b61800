// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/detail/channel_core.hpp>

namespace verbspp::detail {

/// Gives higher layers access to the state of channels.
struct channel_access {
  [[nodiscard]] static channel_core& core_of(const channel& of) noexcept { return of.core(); }
  [[nodiscard]] static channel_core& core_of(const prepared_channel& of) noexcept {
    return of.core();
  }
};

}  // namespace verbspp::detail
