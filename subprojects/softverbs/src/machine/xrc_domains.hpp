// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <list>
#include <unordered_map>

namespace softverbs {

/// An XRC domain: queue pairs, and the shared receive queues from which they take receives. The
/// queues may have been created through any of the process's contexts of the device. A file
/// identifies the domain, but the contents of the file are not used. Without a file, the domain is
/// anonymous.
struct xrc_domain {
  unsigned device = 0;
  /// A descriptor of the file, which keeps the file's inode number from being reused; -1 if there
  /// is no file.
  int descriptor = -1;
  dev_t file_system = 0;
  ino_t file = 0;
  /// The number of calls of `open` that no `close` has undone.
  unsigned opened = 0;
  /// Both maps are indexed by number.
  std::unordered_map<std::uint32_t, ibv_srq*> shared_receive_queues;
  std::unordered_map<std::uint32_t, ibv_qp*> queue_pairs;
};

/// The XRC domains of the process. The engine's lock protects this object and all domains.
class xrc_domains {
 public:
  xrc_domains() = default;
  xrc_domains(const xrc_domains&) = delete;
  xrc_domains& operator=(const xrc_domains&) = delete;

  /// Opens a domain as ibv_open_xrcd would with these arguments; `found` is the result of fstat for
  /// the descriptor. Returns null with `error` set on failure.
  xrc_domain* open(unsigned device, int descriptor, const struct stat& found, int flags,
                   int& error);
  /// Undoes one call of `open`. Destroys the domain if that was the last one.
  void close(xrc_domain& domain) noexcept;

  /// Assigns a queue of the domain a number that begins with `prefix`. Returns the number, or 0 if
  /// none is left. The numbers are assigned in a cycle, so that a number is not reused soon.
  std::uint32_t add(xrc_domain& domain, ibv_srq& queue, std::uint32_t prefix);
  void remove(xrc_domain& domain, std::uint32_t number) noexcept;

 private:
  std::list<xrc_domain> domains_;
  std::unordered_map<std::uint32_t, xrc_domain*> numbers_;
  std::uint32_t last_ = 0;
};

}  // namespace softverbs
