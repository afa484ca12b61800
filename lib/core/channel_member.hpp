// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/hub_state.hpp"
#include <verbspp/core/detail/channel_core.hpp>

#pragma GCC visibility push(hidden)

namespace verbspp::detail {

/// A channel as a member of its hub. A class of its own, so that the hub does not know the core.
struct [[gnu::visibility("hidden")]] channel_member : hub_member {
  explicit channel_member(channel_core& of) noexcept : core(of) {
    poll_found = [](hub_member& self) noexcept {
      static_cast<channel_member&>(self).core.poll_found();
    };
  }

  channel_core& core;
};

}  // namespace verbspp::detail

#pragma GCC visibility pop
