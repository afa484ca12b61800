// SPDX-License-Identifier: Apache-2.0
/// \file
/// The leases of a channel, of which each ends with its connection at the latest.
#pragma once

#include <verbspp/base/result.hpp>
#include <verbspp/channel/detail/channel_core.hpp>
#include <verbspp/channel/lease.hpp>
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

/// One lease, at a place of its own, which its handle owns; between leases, a window that is bound
/// to nothing.
struct [[gnu::visibility("hidden")]] lease_record {
  explicit lease_record(memory_window_owner own_window) noexcept : window(std::move(own_window)) {}

  /// Whether the window is to be given up before it is used again: it has had all keys but the one
  /// that it was allocated with.
  [[nodiscard]] bool is_worn() const noexcept { return binds >= 255; }
  /// Closes it without a request, by which it is gone.
  void deallocate_window() noexcept;
  /// Whether the bind is on its way. \pre the lease is not over
  [[nodiscard]] bool is_binding() const noexcept {
    return granted.by == lease_by::window && !core->is_done(bind);
  }
  /// Gives up what it has, without the connection.
  void give_up() noexcept;

  channel_core* core = nullptr;  ///< whose book it is in; null when the lease is over
  lease_record* next = nullptr;
  lease_record* previous = nullptr;
  lease_request granted{};
  remote_key key{std::uint32_t{0}};
  memory_window_owner window;
  std::uint32_t binds = 0;                   ///< that the window has had
  request bind{};                            ///< the last one
  bool is_void = false;                      ///< the window is bound to nothing (any more)
  std::optional<memory_registration> own{};  ///< by registration
  kept_memory memory{};                      ///< let go when the lease is over
  result<void> outcome = success();          ///< of taking it back
};

/// What a channel knows of its leases.
class [[gnu::visibility("hidden")]] lease_book {
 public:
  lease_book() noexcept = default;
  lease_book(const lease_book&) = delete;
  lease_book& operator=(const lease_book&) = delete;
  /// \pre no lease is open
  ~lease_book();

  /// Finds out, once, whether the device has windows that serve.
  [[nodiscard]] result<void> check_windows(const channel_core& core) noexcept;
  /// Whether requests may invalidate windows.
  [[nodiscard]] bool invalidates() const noexcept { return invalidates_; }

  /// A record with a window that is bound to nothing, under a key that it did not have before.
  [[nodiscard]] result<lease_record*> take_window(const protection_domain& domain) noexcept;
  void put_back(lease_record& record) noexcept;

  void open(lease_record& record, channel_core& core) noexcept;
  void close(lease_record& record) noexcept;

  /// The queue pair is about to be destroyed: some drivers wait there for windows that it has
  /// bound.
  void before_destruction() noexcept;
  void after_destruction(int errnum) noexcept;
  /// The peer has made a key void.
  void note_invalidated(std::uint32_t rkey) noexcept;

 private:
  lease_record* opened_ = nullptr;
  lease_record* idle_ = nullptr;
  bool is_checked_ = false;
  bool invalidates_ = false;
};

}  // namespace verbspp::detail
#pragma GCC visibility pop
