// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// The way in which a lease is granted and revoked.
enum class lease_by : std::uint8_t {
  /// Binds a type 2 memory window to the leased part. The window admits only the peer of this
  /// channel, and is usually revoked by a work request, without a system call. Linux's software
  /// driver, rdma_rxe, checks only the bounds of the registered region, so a lease opens the whole
  /// region there. RC only; the memory has to be registered with `access::window_bind`.
  window,
  /// Registers the leased part separately. The peer of any queue pair in the protection domain has
  /// access if it knows the key. The lease is granted and revoked by system calls. These take
  /// longer than a work request, and the longer the part is, the longer they take. The memory's own
  /// registration need not grant the rights.
  registration,
  /// Uses the key of the memory's own registration. With this key, the peers of all queue pairs in
  /// the protection domain can access all of the memory, for as long as it is registered, and the
  /// next lease has the same key. Granting such a lease needs neither a work request nor a system
  /// call, but revoking it closes the channel's connection. Use this way for trusted peers that
  /// respect the bounds of their lease, and on devices that support no better way.
  connection,
};

[[nodiscard]] const char* to_string(lease_by by) noexcept;

}  // namespace verbspp
