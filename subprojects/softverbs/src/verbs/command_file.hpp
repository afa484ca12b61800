// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "memory/device_memory.hpp"
#include "memory/importable.hpp"
#include "memory/memory_region.hpp"

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <cstddef>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace softverbs {

struct protection_domain;

/// What the contexts have in common that were made of one command descriptor and of its duplicates:
/// to the kernel, they are of one open file, and so is what lives here as long as one of them is
/// open. The engine's lock protects it.
///
/// An object of the device may have several that stand for it, in the same context or in others:
/// the one that it was made as, and those that were imported by its handle. Once it is destroyed by
/// any of them, the others stand for nothing.
struct command_file {
  /// Of the file itself, so that its descriptors are known.
  dev_t system = 0;
  ino_t number = 0;

  std::vector<ibv_context*> contexts;
  std::unordered_set<protection_domain*> domains;
  /// How many there are to the device; parent domains count.
  std::size_t domains_alive = 0;
  structures<memory_region> regions;
  structures<device_memory> memories;
  /// Held while a context is closed, as the last one takes away what the others have passed on.
  /// Before the engine's lock.
  std::mutex closing_lock;

  /// Forgets what of a context that closes only stands for something, and gives the rest to another
  /// one that stays open.
  void part(const ibv_context& closing) noexcept;
  /// Deletes all that is left.
  void clear() noexcept;
};

/// 0 or an errno.
int identify(int descriptor, command_file& file) noexcept;
/// A descriptor of a file that `identify` knows again, in whatever process; -1 with errno.
int open_command_file() noexcept;
/// Whether a descriptor is one of those, of this process or of another one.
bool is_command_file(int descriptor) noexcept;

}  // namespace softverbs
