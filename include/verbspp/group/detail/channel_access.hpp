// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/channel/channel.hpp>
#include <verbspp/channel/detail/channel_core.hpp>

namespace verbspp::detail {

/// What a group needs of its channels beside what programs do.
struct channel_access {
  [[nodiscard]] static channel_core& core_of(const channel& of) noexcept { return of.core(); }
};

}  // namespace verbspp::detail
