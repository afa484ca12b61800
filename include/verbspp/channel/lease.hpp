// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/pending.hpp>
#include <verbspp/core/detail/channel_core.hpp>
#include <verbspp/core/detail/lease_owner.hpp>
#include <verbspp/core/lease_by.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/detail/never_free.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/wait/call_limit.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <type_traits>
#include <utility>

namespace verbspp {

/// Memory of which a part can be leased with these rights, and in this way.
template <access_flags OfMemory, access_flags Rights, lease_by By>
concept LeasableWith =
    detail::because(!Rights.empty() && access::all_remote.contains(Rights),
                    "a lease grants only access::remote_read, remote_write and remote_atomic: name "
                    "at least one of them, and no other right") &&
    detail::because(By != lease_by::window || OfMemory.contains(access::window_bind),
                    "this memory lacks access::window_bind: register it with that right, or choose "
                    "another way to lease it, lease_by::registration or lease_by::connection") &&
    detail::because(By == lease_by::connection || OfMemory.contains(access::local_write) ||
                        !Rights.intersects(access::remote_write | access::remote_atomic),
                    "a lease that grants access::remote_write or access::remote_atomic requires "
                    "memory that was registered with access::local_write") &&
    detail::because(
        By != lease_by::connection || OfMemory.contains(Rights),
        "a lease by connection gives the peer the memory's own key: register the memory with "
        "the remote rights that the lease grants");

/// Memory that a lease can keep: owned memory, which is moved into the lease, or shared memory.
template <class Memory>
concept KeptByLease =
    detail::because(detail::HasKeep<std::remove_cvref_t<Memory>> ||
                        enable_work_memory<std::remove_cvref_t<Memory>>,
                    "a lease can own only a registered_buffer, a shared_buffer, or a part of one; "
                    "to lease part of a region that you own, pass the region with an offset and a "
                    "length") &&
    detail::because(detail::HasKeep<std::remove_cvref_t<Memory>> ||
                        (!std::is_lvalue_reference_v<Memory> && !std::is_const_v<Memory>),
                    "a lease takes ownership of its memory: write std::move(buffer), with a buffer "
                    "that is not const; revoking the lease returns the buffer");

template <access_flags Rights, class Memory = void>
class lease;

/// The result of revoking a lease that owns its memory, together with that memory.
///
///     auto [result, buffer] = std::move(lease).revoke();
template <class Memory>
using revoked = finished<Memory, result<void>>;

namespace detail {

class awaited_revocation;
template <class Memory>
class awaited_return;

/// A lease that a coroutine awaits. The specialization for all leases is in awaited_lease.hpp, so
/// this definition is used only if that header was not included.
template <class Lease>
class awaited_lease {
  static_assert(sizeof(Lease) == 0,
                "to await calls in coroutines, #include <verbspp/coroutine.hpp>");
};

/// Returns the result of revoking a lease together with its memory. If the device did not revoke
/// the access, the memory is never freed, and the returned object is moved from.
template <class Memory>
[[nodiscard]] revoked<Memory> revoked_with(const result<void>& outcome, Memory& memory) noexcept {
  if (outcome.has_error() && outcome.assume_error() == error_kind::driver)
    never_free(std::move(memory));
  return {outcome, std::move(memory)};
}

/// Returns the request for a lease of all of this memory.
template <access_flags Rights, class Memory>
[[nodiscard]] lease_request whole_of(const Memory& memory, lease_by by) noexcept {
  // Requests may write to the memory, even if the type of the program's handle is const.
  auto* const first = reinterpret_cast<std::byte*>(
      const_cast<std::remove_const_t<typename Memory::value_type>*>(memory.data()));
  return {.registered = memory.native_handle(),
          .address = reinterpret_cast<std::uintptr_t>(first),
          .memory = first,
          .length = memory.size() * sizeof(typename Memory::value_type),
          .rights = Rights,
          .by = by};
}

/// Returns the request for a lease of a part of a region. The caller keeps the region alive.
template <access_flags Rights, access_flags OfRegion>
[[nodiscard]] result<lease_request> part_of(const memory_region<OfRegion>& region,
                                            std::size_t offset, std::size_t length,
                                            lease_by by) noexcept {
  const registered_range range{.start = region.start(), .length = region.length()};
  if (!is_within(range, offset, length))
    return no_such_part(range, "lease of a region", offset, length);
  return lease_request{.registered = region.native_handle(),
                       .address = range.start + offset,
                       .memory = static_cast<std::byte*>(region.native_handle()->addr) + offset,
                       .length = length,
                       .rights = Rights,
                       .by = by};
}

}  // namespace detail

/// Gives a channel's peer access to a part of this side's memory, usually under a separate key,
/// until the lease is revoked.
///
///     VERBSPP_TRY(part, region.window_part<access::remote_write>(0, 4096));
///     VERBSPP_TRY(lease, channel.lease(part));
///     ... give lease.remote() to the peer, which then uses it
///     VERBSPP_TRYV(lease.revoke());  // the peer can no longer access the memory
///
/// **Revocation.** `revoke` returns when the device has confirmed that the peer no longer has
/// access, whatever the peer does. Destroying the lease has the same effect. A window is revoked by
/// a local invalidation, which is carried out after the earlier requests in the send queue. If the
/// request can't be posted, and always on rxe, a system call deallocates the window instead. The
/// same happens if the limit is reached during the wait, in which case the channel also breaks, and
/// if a lease is destroyed while requests are in the send queue, since a destructor should not wait
/// for them. If a lease is destroyed before its bind has been carried out, the destructor waits for
/// the bind; if that takes longer than one second or the channel's default limit, whichever is
/// shorter, the channel breaks. The destructor waits in the same way for an invalidation that
/// `async_revoke` has posted. The peer may still have access only if `revoke` returns `driver`; the
/// memory must not be freed in that case, and a lease that owns it never frees it. Other errors
/// report how the wait ended.
///
/// **When the peer uses a revoked lease** for a write, a read or an atomic over an RC connection
/// that has not ended, its request fails with a remote access error, and its channel breaks. The
/// channel of this side breaks, too, because a queue pair that has refused an access goes to ERR.
/// The channel detects that with its next request or receive. Over UC, the peer's write has no
/// effect, and the peer gets no error.
///
/// **The key.** A lease by `lease_by::connection` always has the key of the memory's registration;
/// each other lease of the same bytes has a new key. A window is used for up to 255 leases, each
/// with the next of its 256 keys. Then it is replaced by a new one, which is allocated before the
/// old one is deallocated. A window that a system call has revoked is not reused. So a key recurs
/// only if the device reuses the number of an earlier window or registration.
///
/// **When the connection ends**, by a failure, by `close` or `renew`, or because its channel is
/// destroyed, its leases end, too: in ERR the device refuses the peer's requests, and the resources
/// of the leases are released before the queue pair is destroyed. A lease object may outlive its
/// connection; revoking it then posts no request.
///
/// **When the peer returns the lease** by `post_send_with_invalidate`, the completion of the
/// receive informs the channel: after that `is_open` is false, and `revoke` succeeds immediately.
/// The channel is not informed if it belongs to a hub with a pool, whose receives are shared. In
/// that case, the program passes the key from the message to `note_invalidated`. Only one side
/// should end a lease: if both invalidate its key, the second invalidation fails on most devices,
/// and the connection breaks. The lease is over either way.
///
/// **The memory.** A lease of a part of a region *borrows* the memory: the caller has to keep the
/// region and its bytes until the lease is over. While a window of the lease is bound,
/// deregistering the region fails. A lease of a shared buffer, or a part of one, keeps the pages
/// alive. A lease of an owned buffer, or a part of one, owns the buffer: it is a `lease<Rights,
/// Memory>`, whose `revoke` returns the buffer. Destroying such a lease revokes it, and then
/// destroys the memory. If the device does not release the memory, a lease that shares or owns the
/// memory never frees it.
///
/// A move-only owner; assigning to a lease revokes the previous one. A lease that was default
/// constructed or moved from is empty. Thread rule: one thread at a time for the lease and its
/// channel.
template <access_flags Rights, class Memory>
class [[nodiscard]] VERBSPP_CONSUMABLE lease {
  static constexpr bool borrows = std::is_void_v<Memory>;
  using owned_memory = std::conditional_t<borrows, detail::no_memory, Memory>;
  using outcome = std::conditional_t<borrows, result<void>, revoked<Memory>>;
  using awaited_outcome =
      std::conditional_t<borrows, detail::awaited_revocation, detail::awaited_return<Memory>>;

 public:
  static constexpr access_flags rights = Rights;

  /// Creates an empty lease.
  lease() noexcept
    requires(borrows)
  = default;
  /// Used by the library only.
  explicit lease(detail::lease_owner owner, owned_memory&& memory = {}) noexcept
      : owner_(std::move(owner)), memory_(std::move(memory)) {}
  lease(lease&&) noexcept = default;
  lease& operator=(lease&& other) noexcept {
    lease taken(std::move(other));
    owner_.swap(taken.owner_);
    std::swap(memory_, taken.memory_);
    return *this;
  }
  lease(const lease&) = delete;
  lease& operator=(const lease&) = delete;
  ~lease() {
    if constexpr (!borrows)
      if (!owner_.drop()) detail::never_free(std::move(memory_));
  }

  /// Returns the leased memory as remote memory, to be given to the peer.
  /// \errors `invalid_input` if the lease was revoked, or is empty; `not_connected` if it ended
  /// with its connection, or was returned by the peer
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<remote_memory<Rights>> remote() const noexcept {
    VERBSPP_TRY(key, owner_.key());
    return remote_memory<Rights>(owner_.address(), owner_.length(), key);
  }
  /// True if the lease was granted, or posted by `post_lease`, and has not ended, as far as this
  /// side knows. False after `revoke`, after the end of the connection, and after the channel has
  /// received the message by which the peer invalidated the key. A channel of a hub with a pool
  /// does not notice that message: see `note_invalidated`.
  [[nodiscard]] bool is_open() const noexcept { return owner_.is_open(); }
  /// Informs the lease that the peer has invalidated a key, in case the channel could not notice
  /// it: `lease.note_invalidated(*message.received()->invalidated_rkey())`.
  /// \returns true if it is the key of this lease, which the peer has thereby returned
  bool note_invalidated(remote_key key) noexcept { return owner_.note_invalidated(key); }
  /// \pre the lease was not revoked, and is not empty
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED lease_by by() const noexcept { return owner_.by(); }
  /// The lease's memory window; null if the lease has none, or if it was already deallocated.
  [[nodiscard]] ibv_mw* native_handle() const noexcept {
    return owner_.has_lease() ? owner_.window() : nullptr;
  }
  /// The memory that the lease owns, which the peer can access while this side uses it. This
  /// function is for data that both sides use, such as words that the peer changes with atomics.
  [[nodiscard]] owned_memory& memory() & noexcept VERBSPP_LIFETIMEBOUND
    requires(!borrows)
  {
    return memory_;
  }
  [[nodiscard]] const owned_memory& memory() const& noexcept VERBSPP_LIFETIMEBOUND
    requires(!borrows)
  {
    return memory_;
  }
  void memory() const&& = delete;  // a temporary lease ends here: store it in a variable

  /// Revokes the lease, and blocks until the device has confirmed the revocation. Returns the
  /// memory that the lease owns with the result. After the call, the lease is over, whatever the
  /// result.
  /// \errors `timed_out`, `cancelled` if the limit, or an event of the watched descriptor, ended
  /// the wait and broke the connection: the peer then has no access; `driver` if the device did not
  /// revoke the access; `invalid_input` if the lease was revoked before, or is empty
  VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES outcome
  revoke(call_limit limit = call_limit::of_channel()) && noexcept {
    if constexpr (borrows)
      return owner_.revoke(limit);
    else
      return detail::revoked_with(owner_.revoke(limit), memory_);
  }
  VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<void> revoke(
      call_limit limit = call_limit::of_channel()) & noexcept
    requires(borrows)
  {
    return owner_.revoke(limit);
  }
  void revoke(call_limit = call_limit::of_channel()) &
      VERBSPP_DETAIL_REFUSED(
          !borrows,
          "revoke returns the memory of this lease, so it consumes the lease: write "
          "std::move(lease).revoke()");

  /// Revokes the lease in a coroutine; include `<verbspp/coroutine.hpp>`. `channel::poll` resumes
  /// the coroutine when the device has confirmed that the peer has no access. The lease must
  /// outlive the wait. If the limit is reached before the queue has room, a system call revokes the
  /// lease, and the channel is not affected, unless the device has not yet carried out the request
  /// that grants the lease: in that case, the channel breaks. If the limit is reached after the
  /// request was posted, the channel breaks, as with `revoke`. A lease that needs no request is
  /// revoked by `revoke`, without suspending the coroutine. If the coroutine is destroyed, the
  /// destructor of the lease revokes it. The `co_await` expression returns the memory that the
  /// lease owns with the result.
  /// \errors as `revoke`
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES awaited_outcome
  async_revoke(const wait_limit& limit = detail::default_limit) && noexcept;
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES detail::awaited_revocation
  async_revoke(const wait_limit& limit = detail::default_limit) & noexcept
    requires(std::is_void_v<Memory>);
  void async_revoke(const wait_limit& = detail::default_limit) &
      VERBSPP_DETAIL_REFUSED(
          !borrows,
          "async_revoke returns the memory of this lease, so it consumes the lease: write "
          "std::move(lease).async_revoke()");

  friend std::ostream& operator<<(std::ostream& out, const lease& lease) {
    lease.owner_.print(out, Rights);
    return out;
  }

 private:
  detail::lease_owner owner_;
  [[no_unique_address]] owned_memory memory_{};
};

#define VERBSPP_DETAIL_TEMPORARY_REGION                                                           \
  VERBSPP_DETAIL_REFUSED((LeasableWith<OfRegion, Rights, By>),                                    \
                         "a lease refers to its region, which must outlive it: store the region " \
                         "in a variable, and pass it without std::move")

/// The functions with which a channel grants leases: for a window part, for a part of a region, for
/// a buffer that the lease then owns, or for a shared buffer.
///
///     channel.lease(region.window_part<access::remote_write>(0, 64).value());
///     channel.lease<access::remote_write>(region, 0, 64);
///     channel.lease<access::remote_write>(std::move(buffer));
///     channel.lease<access::remote_write>(shared_buffer);
///     channel.lease<access::remote_write, lease_by::registration>(shared_buffer);
///
/// `lease` blocks until the peer has access, at most until its limit, or the channel's default
/// limit. `post_lease` does not wait for the device: the peer has access when the request has been
/// carried out, so `remote()` may be sent to the peer by any later request of this channel. If the
/// device then refuses the lease, the connection breaks. Memory that is moved into a lease stays
/// with the caller if the lease is not granted.
///
/// `async_lease` is `lease` for coroutines; include `<verbspp/coroutine.hpp>`. `channel::poll`
/// resumes the coroutine when the peer has access. If the queue is full, the lease waits for room;
/// if it gets none before the limit, the channel is not affected. If the coroutine is destroyed
/// during the wait, the lease is revoked in the same way as by its destructor. Await the call in
/// the expression that makes it, because the returned object refers to the arguments of the call.
///
/// `Channel` has `core()`, which returns its state.
/// \errors those of posting; those of the request, which break the connection; `timed_out`,
/// `cancelled` if the limit ended the wait, which also breaks the connection, unless the limit had
/// expired before the call, or `async_lease` waited for room; `not_supported` if the device or the
/// transport has no windows that requests can bind and invalidate: the error's message names the
/// other ways to lease; `resource_exhausted`; `permission` if the channel's access flags do not
/// allow the rights; `invalid_input` for 0 bytes, for bytes outside the region, for memory that was
/// deregistered, and, unless the lease registers the memory, for memory of another protection
/// domain; for a lease by registration, those of `register_memory`
template <class Channel>
class lease_operations {
 public:
  template <access_flags Rights>
  [[nodiscard]] result<verbspp::lease<Rights>> lease(
      const window_part<Rights>& part, call_limit limit = call_limit::of_channel()) noexcept {
    return grant<Rights>(request_of(part), true, limit, {});
  }
  template <access_flags Rights>
  [[nodiscard]] result<verbspp::lease<Rights>> post_lease(
      const window_part<Rights>& part) noexcept {
    return grant<Rights>(request_of(part), false, call_limit::of_channel(), {});
  }
  template <access_flags Rights>
  [[nodiscard]] detail::awaited_lease<verbspp::lease<Rights>> async_lease(
      const window_part<Rights>& part, const wait_limit& limit = detail::default_limit) noexcept {
    return {core(), request_of(part), {}, limit};
  }

  /// Leases `length` bytes of the region, beginning with byte `offset`.
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
    requires LeasableWith<OfRegion, Rights, By>
  [[nodiscard]] result<verbspp::lease<Rights>> lease(
      const memory_region<OfRegion>& region, std::size_t offset, std::size_t length,
      call_limit limit = call_limit::of_channel()) noexcept {
    VERBSPP_TRY(part, detail::part_of<Rights>(region, offset, length, By));
    return grant<Rights>(part, true, limit, {});
  }
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
    requires LeasableWith<OfRegion, Rights, By>
  [[nodiscard]] result<verbspp::lease<Rights>> post_lease(const memory_region<OfRegion>& region,
                                                          std::size_t offset,
                                                          std::size_t length) noexcept {
    VERBSPP_TRY(part, detail::part_of<Rights>(region, offset, length, By));
    return grant<Rights>(part, false, call_limit::of_channel(), {});
  }
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
    requires LeasableWith<OfRegion, Rights, By>
  [[nodiscard]] detail::awaited_lease<verbspp::lease<Rights>> async_lease(
      const memory_region<OfRegion>& region, std::size_t offset, std::size_t length,
      const wait_limit& limit = detail::default_limit) noexcept {
    return {core(), detail::part_of<Rights>(region, offset, length, By), {}, limit};
  }
  // A temporary region is refused, because it is destroyed before the lease ends.
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
  void lease(const memory_region<OfRegion>&& region, std::size_t offset, std::size_t length,
             call_limit limit = call_limit::of_channel()) VERBSPP_DETAIL_TEMPORARY_REGION;
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
  void post_lease(const memory_region<OfRegion>&& region, std::size_t offset,
                  std::size_t length) VERBSPP_DETAIL_TEMPORARY_REGION;
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
  void async_lease(const memory_region<OfRegion>&& region, std::size_t offset, std::size_t length,
                   const wait_limit& limit = detail::default_limit) VERBSPP_DETAIL_TEMPORARY_REGION;

  /// Leases a buffer, or a part of one. A buffer that owns its memory is moved into the lease; a
  /// handle to shared memory is copied.
  template <access_flags Rights, lease_by By = lease_by::window, class Memory>
    requires KeptByLease<Memory> && LeasableWith<std::remove_cvref_t<Memory>::rights, Rights, By>
  [[nodiscard]] auto lease(Memory&& memory, call_limit limit = call_limit::of_channel()) noexcept {
    return grant_with<Rights, By>(std::forward<Memory>(memory), true, limit);
  }
  template <access_flags Rights, lease_by By = lease_by::window, class Memory>
    requires KeptByLease<Memory> && LeasableWith<std::remove_cvref_t<Memory>::rights, Rights, By>
  [[nodiscard]] auto post_lease(Memory&& memory) noexcept {
    return grant_with<Rights, By>(std::forward<Memory>(memory), false, call_limit::of_channel());
  }
  template <access_flags Rights, lease_by By = lease_by::window, class Memory>
    requires KeptByLease<Memory> && LeasableWith<std::remove_cvref_t<Memory>::rights, Rights, By>
  [[nodiscard]] auto async_lease(Memory&& memory,
                                 const wait_limit& limit = detail::default_limit) noexcept {
    const auto request = detail::whole_of<Rights>(memory, By);
    if constexpr (SharedMemory<Memory>) {
      using granting = detail::awaited_lease<verbspp::lease<Rights>>;
      return granting(core(), request, memory.keep(), limit);
    } else {
      using granting = detail::awaited_lease<verbspp::lease<Rights, std::remove_cvref_t<Memory>>>;
      return granting(core(), request, {}, limit, &memory);
    }
  }

 protected:
  lease_operations() noexcept = default;
  lease_operations(lease_operations&&) noexcept = default;
  lease_operations& operator=(lease_operations&&) noexcept = default;
  ~lease_operations() = default;

 private:
  template <access_flags Rights>
  [[nodiscard]] static detail::lease_request request_of(const window_part<Rights>& part) noexcept {
    return {.registered = part.native().mr,
            .address = part.address(),
            .memory = nullptr,
            .length = part.length(),
            .rights = Rights,
            .by = lease_by::window};
  }

  template <access_flags Rights>
  [[nodiscard]] result<verbspp::lease<Rights>> grant(const detail::lease_request& request,
                                                     bool waits, call_limit limit,
                                                     detail::kept_memory memory) noexcept {
    VERBSPP_TRY(owner, detail::lease_owner::grant(core(), request, waits, limit, memory));
    return verbspp::lease<Rights>(std::move(owner));
  }

  template <access_flags Rights, lease_by By, class Memory>
  [[nodiscard]] auto grant_with(Memory&& memory, bool waits, call_limit limit) noexcept {
    const auto request = detail::whole_of<Rights>(memory, By);
    if constexpr (SharedMemory<Memory>) {
      return grant<Rights>(request, waits, limit, memory.keep());
    } else {
      using owning = verbspp::lease<Rights, std::remove_cvref_t<Memory>>;
      auto owner = detail::lease_owner::grant(core(), request, waits, limit, {});
      if (!owner.has_value()) return result<owning>(owner.assume_error());
      return result<owning>(owning(std::move(owner).assume_value(), std::forward<Memory>(memory)));
    }
  }

  [[nodiscard]] detail::channel_core& core() noexcept {
    return static_cast<Channel&>(*this).core();
  }
};

#undef VERBSPP_DETAIL_TEMPORARY_REGION

}  // namespace verbspp
