// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace softverbs {

struct memory_region;

/// A part of a region, with rights of its own and a key that can be taken back without a system
/// call. Of type 1 it is for all queue pairs of its domain, of type 2 for the one that bound it.
struct memory_window final : ibv_mw {
  memory_region* region = nullptr;  ///< null if it isn't bound
  const ibv_qp* pair = nullptr;     ///< type 2
  std::uint64_t start = 0;          ///< what the address of the first byte is called
  std::uint64_t length = 0;
  std::byte* memory = nullptr;
  unsigned access = 0;
};

/// What a bind request asks for.
struct window_binding {
  std::uint32_t window;  ///< its handle
  std::uint32_t rkey;    ///< its key then
  std::uint32_t region;  ///< the lkey; 0 for none
  unsigned access;
  std::uint64_t address;
  std::uint64_t length;
};

}  // namespace softverbs
