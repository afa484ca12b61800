// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace softverbs {

struct memory_region;

/// A part of a region, with its own access rights, and a key that can be revoked without a system
/// call. A window of type 1 can be used through all queue pairs of its domain, one of type 2 only
/// through the queue pair that bound it.
struct memory_window final : ibv_mw {
  memory_region* region = nullptr;  ///< null if not bound
  const ibv_qp* pair = nullptr;     ///< the queue pair that bound it; null for type 1
  std::uint64_t start = 0;          ///< the address that work requests use for the first byte
  std::uint64_t length = 0;
  std::byte* memory = nullptr;
  unsigned access = 0;
};

/// The parameters of a bind request.
struct window_binding {
  std::uint32_t window;  ///< the handle of the window
  std::uint32_t rkey;    ///< the key of the window after the request
  std::uint32_t region;  ///< the lkey of the region; 0 to unbind
  unsigned access;
  std::uint64_t address;
  std::uint64_t length;
};

}  // namespace softverbs
