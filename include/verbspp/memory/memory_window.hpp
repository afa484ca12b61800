// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/memory/protection_domain.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <iosfwd>
#include <utility>

namespace verbspp {

/// The types of memory windows, with the values of `ibv_mw_type`. The types differ in which peers
/// have access, and in how this access ends.
enum class memory_window_type : std::uint8_t {
  /// Grants access to the peers of all queue pairs of its protection domain, until the window is
  /// destroyed, or bound again, for example to zero bytes.
  type_1 = IBV_MW_TYPE_1,
  /// Grants access to the peer of the queue pair that bound the window, until the window is
  /// destroyed, or this side or the peer invalidates its rkey.
  type_2 = IBV_MW_TYPE_2,
};

[[nodiscard]] const char* to_string(memory_window_type type) noexcept;

/// Windows whose bind is an ordinary work request, which can be part of a batch. The bind of a
/// window of type 1 is posted through a separate call.
template <memory_window_type Type>
concept BoundByRequest =
    detail::because(Type == memory_window_type::type_2,
                    "a memory window of type 1 is bound by its own call of queue_pair::post_bind: "
                    "only windows of type 2 can be bound in a batch");

namespace detail {

/// Owns or borrows an `ibv_mw` of either type.
class memory_window_owner {
 public:
  /// Creates an owner that has no window yet. `allocate` or `adopt` adds one.
  explicit memory_window_owner(const protection_domain& domain) noexcept
      : domain_(domain.below()) {}
  memory_window_owner(const memory_window_owner&) = delete;
  memory_window_owner(memory_window_owner&& other) noexcept
      : domain_(std::move(other.domain_)),
        native_(std::exchange(other.native_, nullptr)),
        whose_(other.whose_) {}
  memory_window_owner& operator=(const memory_window_owner&) = delete;
  /// Destroys the previous window, unless it was borrowed.
  memory_window_owner& operator=(memory_window_owner&& other) noexcept {
    memory_window_owner taken(std::move(other));
    std::swap(domain_, taken.domain_);
    std::swap(native_, taken.native_);
    std::swap(whose_, taken.whose_);
    return *this;
  }
  ~memory_window_owner();

  [[nodiscard]] result<void> allocate(memory_window_type type) noexcept;
  [[nodiscard]] result<void> adopt(const protection_domain& domain, memory_window_type type,
                                   ibv_mw* native, ownership whose) noexcept;
  [[nodiscard]] ibv_mw* release() noexcept { return std::exchange(native_, nullptr); }
  [[nodiscard]] ibv_mw* native() const noexcept { return native_; }
  [[nodiscard]] const protection_domain& domain() const noexcept { return domain_; }

 private:
  // The domain to which the window belongs. For a window that was created in a parent domain, this
  // is the protection domain from which the parent domain was created, unless C code has created
  // the window.
  protection_domain domain_;
  ibv_mw* native_ = nullptr;
  ownership whose_ = ownership::taken;
};

[[nodiscard]] error window_is_gone(const char* operation) noexcept;

void print(std::ostream& out, const memory_window_owner& window, memory_window_type type);

}  // namespace detail

/// Grants peers access to a part of a memory region under a separate key, and revokes this access.
/// One work request grants the access, and another one revokes it, usually without a system call,
/// and in order with the other requests of the queue pair.
///
///     VERBSPP_TRY(region, register_memory<access::local_write | access::window_bind>(pd, memory));
///     VERBSPP_TRY(window, memory_window<memory_window_type::type_2>::create(pd));
///     VERBSPP_TRY(part, region.window_part<access::remote_read>(0, 64));
///     VERBSPP_TRY(remote, queue_pair.post_bind(window, part, {.id = 1}));
///
/// The region needs no remote rights for this, but the queue pair does. The bind changes the
/// window's rkey, so handles that peers already have become invalid. `remote` may be sent to the
/// peer by a request that is posted to this queue pair after the bind, or by any other means once
/// the bind has completed.
///
/// A move-only owner, which keeps its protection domain alive. Destroying the window ends the
/// access, regardless of the queue pair that bound it. The compiler checks that the bind is
/// permitted by the rights of the region, and by the transport and the state of the queue pair. The
/// device checks that the queue pair belongs to the same protection domain, and that a window of
/// type 2 is not still bound; otherwise, the bind completes with `memory_window_bind_error`. If a
/// peer on RC does not have access, or uses an old rkey, its access fails with a remote access
/// error. The program must ensure the rest:
///
/// - The window must live until its bind has completed.
/// - The region must live until no window is bound to it: each window must have been destroyed, or
///   the request that invalidates it or binds it elsewhere must have completed. If the program
///   destroys the region earlier, the memory cannot be deregistered and stays registered.
///   `deregister` returns this failure; the destructor reports it (`set_destroy_failure_handler`).
/// - A window of type 2 must be invalidated or destroyed before the queue pair that bound it is
///   destroyed. Otherwise, destroying the queue pair takes most of a minute with Linux's software
///   driver (rxe), which waits that long for the window to be invalidated or destroyed.
/// - A window whose bind was posted but did not succeed must not be bound again, because its rkey
///   is unknown. Destroy the window and create a new one.
///
/// Thread rule: binding needs exclusive access to the window.
template <memory_window_type Type>
class VERBSPP_CONSUMABLE memory_window {
 public:
  static constexpr memory_window_type type = Type;

  /// Creates a window that is not bound (`ibv_alloc_mw`).
  /// \errors `not_supported` if the device has no windows of this type; `resource_exhausted`,
  /// `driver`; `invalid_input` if the protection domain was moved from
  [[nodiscard]] static result<memory_window> create(
      const class protection_domain& domain) noexcept {
    detail::memory_window_owner owner(domain);
    VERBSPP_TRYV(owner.allocate(Type));
    return memory_window(std::move(owner));
  }

  /// Takes ownership of a window in this protection domain, or borrows it. A window that C code has
  /// allocated in a parent domain keeps that domain alive, and can be bound only to regions that C
  /// code has registered in it.
  /// \errors `invalid_input` for null, or a window of a different type or protection domain
  [[nodiscard]] static result<memory_window> from_native(const class protection_domain& domain,
                                                         ibv_mw* native, ownership whose) noexcept {
    detail::memory_window_owner owner(domain);
    VERBSPP_TRYV(owner.adopt(domain, Type, native, whose));
    return memory_window(std::move(owner));
  }
  /// Returns the native window, and ends its use by the library. Unless it was borrowed, the caller
  /// must deallocate it before the protection domain. Returns null if the window was moved from.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES ibv_mw* release() && noexcept {
    return owner_.release();
  }

  /// The key that resulted from the last bind that was posted. Pass it to the request that
  /// invalidates the window. It is 0 if the window was moved from.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED remote_key rkey() const noexcept {
    const ibv_mw* const native = owner_.native();
    return remote_key(native != nullptr ? native->rkey : std::uint32_t{0});
  }
  [[nodiscard]] const class protection_domain& protection_domain() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    return owner_.domain();
  }
  [[nodiscard]] class protection_domain protection_domain() && noexcept { return owner_.domain(); }
  /// Null if the window was moved from.
  [[nodiscard]] ibv_mw* native_handle() const noexcept { return owner_.native(); }

  friend std::ostream& operator<<(std::ostream& out, const memory_window& window) {
    detail::print(out, window.owner_, Type);
    return out;
  }

 private:
  explicit memory_window(detail::memory_window_owner owner) noexcept : owner_(std::move(owner)) {}

  detail::memory_window_owner owner_;
};

}  // namespace verbspp
