// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/core/detail/lease_owner.hpp>
#include <verbspp/core/lease_by.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/memory_window.hpp>
#include <verbspp/memory/protection_domain.hpp>

#include <cstdint>
#include <optional>
#include <utility>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// The name of granting a lease in error messages.
inline constexpr const char* granting_lease = "lease memory";

/// The error for an operation that needs memory windows when none are available.
/// \param errnum the errno of the call that failed; 0 if none did
[[nodiscard]] error without_windows(const char* operation, int errnum = 0) noexcept;

/// The record of one lease, which belongs to the lease's handle. Between leases, the book keeps
/// those records that still have a window.
struct [[gnu::visibility("hidden")]] lease_record {
  explicit lease_record(memory_window_owner own_window) noexcept : window(std::move(own_window)) {}

  /// True if the window must not be used for another lease, because it has used up all of its keys
  /// except the one with which it was allocated.
  [[nodiscard]] bool is_worn() const noexcept { return binds >= 255; }
  /// Revokes the access by deallocating the window, so that no request is needed.
  void deallocate_window() noexcept;
  /// True if the bind is in flight. \pre the lease has not ended
  [[nodiscard]] bool is_binding() const noexcept {
    return granted.by == lease_by::window && !core->is_done(bind);
  }
  /// Posts the invalidation of the window, unless it was posted before. \returns false if it can't
  /// be posted
  [[nodiscard]] bool post_invalidation() noexcept;
  /// Releases the window or the registration with a system call, which does not use the connection.
  void give_up() noexcept;

  channel_core* core = nullptr;  ///< the channel of the lease; null when the lease has ended
  lease_record* next = nullptr;
  lease_record* previous = nullptr;
  lease_request granted{};
  remote_key key{std::uint32_t{0}};
  memory_window_owner window;
  std::uint32_t binds = 0;                   ///< the number of binds of this window
  request bind{};                            ///< the last bind
  std::optional<request> invalidation{};     ///< posted; its result was not taken yet
  bool is_void = false;                      ///< the window was invalidated after its last bind
  std::optional<memory_registration> own{};  ///< for a lease by registration
  kept_memory memory{};                      ///< released when the lease is revoked or dropped
  result<void> outcome = success();          ///< the outcome of the revocation
};

/// The leases of one channel, which end with its connection at the latest.
class [[gnu::visibility("hidden")]] lease_book {
 public:
  lease_book() noexcept = default;
  lease_book(const lease_book&) = delete;
  lease_book& operator=(const lease_book&) = delete;
  /// \pre no lease is open
  ~lease_book();

  /// Checks that the device supports suitable windows. Once a call has succeeded, later calls do
  /// not query the device.
  [[nodiscard]] result<void> check_windows(const channel_core& core) noexcept;
  /// True if `check_windows` has succeeded, and the device can invalidate windows without harm.
  [[nodiscard]] bool invalidates() const noexcept { return invalidates_; }

  /// Returns a record with a window that is not bound to memory. Its next bind has a new key.
  [[nodiscard]] result<lease_record*> take_window(const protection_domain& domain) noexcept;
  void put_back(lease_record& record) noexcept;

  void open(lease_record& record, channel_core& core) noexcept;
  void close(lease_record& record) noexcept;

  /// Releases windows and registrations before the queue pair is destroyed, because some drivers do
  /// not destroy a queue pair while windows that it has bound still exist.
  void before_destruction() noexcept;
  void after_destruction(int errnum) noexcept;
  /// Notes that the peer has invalidated a key.
  void note_invalidated(std::uint32_t rkey) noexcept;

 private:
  lease_record* opened_ = nullptr;
  lease_record* idle_ = nullptr;
  bool is_checked_ = false;
  bool invalidates_ = false;
};

}  // namespace verbspp::detail
#pragma GCC visibility pop
