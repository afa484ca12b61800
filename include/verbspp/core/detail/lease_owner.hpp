// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/core/lease_by.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/wait/call_limit.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <utility>

namespace verbspp {

class continuation;

namespace detail {

class channel_core;
struct lease_record;

/// The memory to be leased, and the rights.
struct lease_request {
  /// The registration of the memory. Null if the registration no longer exists (`memory` is then
  /// null as well), or if a lease by registration is to register the memory.
  ibv_mr* registered;
  std::uint64_t address;  ///< the first byte, as peers address it
  std::byte* memory;      ///< the program's address of the first byte; null for a window part
  std::uint64_t length;
  access_flags rights;
  lease_by by;
};

/// A lease, independent of the types of its rights and memory.
class lease_owner {
 public:
  /// \param waits true to wait until the peer has access
  /// \param memory if the memory is shared, its owner, which is released when the lease is over, or
  /// if this function fails
  [[nodiscard]] static result<lease_owner> grant(channel_core& core, const lease_request& request,
                                                 bool waits, call_limit limit,
                                                 kept_memory memory) noexcept;
  /// An owner without a lease.
  lease_owner() noexcept = default;
  lease_owner(const lease_owner&) = delete;
  lease_owner& operator=(const lease_owner&) = delete;
  lease_owner(lease_owner&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
  lease_owner& operator=(lease_owner&&) = delete;
  ~lease_owner() { static_cast<void>(drop()); }

  void swap(lease_owner& other) noexcept { std::swap(record_, other.record_); }
  /// Adds the continuation to the request that grants the lease. `granted` then returns the result
  /// of that request.
  /// \returns false, without adding the continuation, if no request is in flight
  /// \pre has_lease()
  [[nodiscard]] bool grant_and_then(continuation& next) noexcept;
  [[nodiscard]] result<void> granted(channel_core& core) noexcept;
  [[nodiscard]] result<void> revoke(call_limit limit) noexcept;
  /// The channel that has to be polled until a request has revoked the lease; null if no request is
  /// needed to revoke it.
  [[nodiscard]] channel_core* polled() noexcept;
  /// Posts the request that revokes the lease, and adds the continuation to it. `revoke` then takes
  /// the result of that request.
  /// \returns false, without adding the continuation, if no request is in flight
  [[nodiscard]] bool revoke_and_then(continuation& next) noexcept;
  /// Revokes the lease. A failure is not returned, but is reported to the handler of
  /// `set_destroy_failure_handler`.
  /// \returns true if the program may reuse the memory
  bool drop() noexcept;
  [[nodiscard]] bool is_open() const noexcept;
  [[nodiscard]] result<remote_key> key() const noexcept;
  bool note_invalidated(remote_key key) noexcept;
  [[nodiscard]] bool has_lease() const noexcept { return record_ != nullptr; }
  // The next four functions have the precondition `has_lease()`.
  [[nodiscard]] std::uint64_t address() const noexcept;
  [[nodiscard]] std::uint64_t length() const noexcept;
  [[nodiscard]] lease_by by() const noexcept;
  [[nodiscard]] ibv_mw* window() const noexcept;
  void print(std::ostream& out, access_flags rights) const;

 private:
  explicit lease_owner(lease_record* record) noexcept : record_(record) {}

  lease_record* record_ = nullptr;  ///< null if empty, moved from or revoked
};

}  // namespace detail

}  // namespace verbspp
