// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <list>
#include <unordered_map>

namespace softverbs {

/// A domain of XRC: the shared receive queues that its queue pairs fill, whoever of the process has
/// made them. Known by a file, whose contents nobody looks at, or by nothing.
struct xrc_domain {
  unsigned device = 0;
  /// Of the file, so that no other one gets its number; -1 if there is none.
  int descriptor = -1;
  dev_t file_system = 0;
  ino_t file = 0;
  /// How often it is open.
  unsigned opened = 0;
  /// By their numbers.
  std::unordered_map<std::uint32_t, ibv_srq*> shared_receive_queues;
  std::unordered_map<std::uint32_t, ibv_qp*> queue_pairs;
};

/// Those of the process. The engine's lock protects it, with all domains.
class xrc_domains {
 public:
  xrc_domains() = default;
  xrc_domains(const xrc_domains&) = delete;
  xrc_domains& operator=(const xrc_domains&) = delete;

  /// As ibv_open_xrcd with these, and what fstat says of the descriptor: null with `error` set, or
  /// one that is open once more.
  xrc_domain* open(unsigned device, int descriptor, const struct stat& found, int flags,
                   int& error);
  /// The last one to close it destroys it.
  void close(xrc_domain& domain) noexcept;

  /// Gives a queue of the domain a number, of those that begin with `prefix`; 0 if there is none
  /// left. Numbers go round, so that one that was used does not come back soon.
  std::uint32_t add(xrc_domain& domain, ibv_srq& queue, std::uint32_t prefix);
  void remove(xrc_domain& domain, std::uint32_t number) noexcept;

 private:
  std::list<xrc_domain> domains_;
  std::unordered_map<std::uint32_t, xrc_domain*> numbers_;
  std::uint32_t last_ = 0;
};

}  // namespace softverbs
