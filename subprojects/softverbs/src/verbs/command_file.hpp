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

/// The state shared by contexts whose command descriptors refer to the same file: the context that
/// was opened, and those that were imported from its descriptor or a duplicate. As with a file of
/// the kernel, the objects that are left are destroyed when the last of these contexts is closed.
/// Protected by the engine's lock.
///
/// Several structures may refer to an object of the device, in one or more contexts: the structure
/// that was created with the object, and those that were imported by its handle. The object may be
/// destroyed through any of them, and the others then refer to a destroyed object.
struct command_file {
  /// These members identify the file, and thereby its descriptors.
  dev_t system = 0;
  ino_t number = 0;

  std::vector<ibv_context*> contexts;
  std::unordered_set<protection_domain*> domains;
  /// The number of domains that have not been destroyed, including parent domains. Imported
  /// structures are not counted.
  std::size_t domains_alive = 0;
  structures<memory_region> regions;
  structures<device_memory> memories;
  /// Held while a context is closed, because the last context to be closed deletes the objects that
  /// the others have left behind. Must be taken before the engine's lock.
  std::mutex closing_lock;

  /// Called when a context is closed and other contexts still have the file. Deletes the context's
  /// parent domains and the structures that are no longer needed, and moves its other structures to
  /// a context that is still open.
  void part(const ibv_context& closing) noexcept;
  /// Deletes everything that is left.
  void clear() noexcept;
};

/// Sets the members of `file` that identify the descriptor's file. Returns 0 or an errno value.
int identify(int descriptor, command_file& file) noexcept;
/// Returns a new descriptor of a file that `is_command_file` recognizes, in any process; -1 with
/// errno on failure.
int open_command_file() noexcept;
/// True if the descriptor was opened by `open_command_file`, in this process or another one.
bool is_command_file(int descriptor) noexcept;

}  // namespace softverbs
