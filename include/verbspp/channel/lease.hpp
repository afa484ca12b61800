// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/error.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/channel/call_limit.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/window_part.hpp>
#include <verbspp/memory/work_memory.hpp>

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <new>
#include <type_traits>
#include <utility>

namespace verbspp {

/// How a lease is granted and taken back.
enum class lease_by : std::uint8_t {
  /// By a memory window of type 2, bound to the part for this purpose, which lets in the peer of
  /// this channel alone. Taken back by a request, without a system call. RC; the memory has to be
  /// registered with `access::window_bind`.
  window,
  /// By a registration of the part of its own, whose key lets in the peers of all queue pairs of
  /// the protection domain that know it. Granted and taken back by system calls: that takes longer,
  /// more so for more bytes. The memory's own registration need not give the rights.
  registration,
  /// By the memory's own key, which lets in the peers of all queue pairs of the protection domain,
  /// to all of the memory, for as long as it is registered: the next lease has the same key. Costs
  /// nothing to grant, and is taken back by ending the connection of this channel. For peers that
  /// are trusted to go by what they were told, and devices that have no better.
  connection,
};

[[nodiscard]] const char* to_string(lease_by by) noexcept;

/// What a lease can grant.
template <access_flags Rights>
concept LeaseRights = detail::because(!Rights.empty() && access::all_remote.contains(Rights),
                                      "a lease grants remote rights and nothing else: name "
                                      "access::remote_read, remote_write or remote_atomic");

/// Memory of which a part can be leased with these rights in that way.
template <access_flags OfMemory, access_flags Rights, lease_by By>
concept LeasableWith =
    detail::because(By != lease_by::window || OfMemory.contains(access::window_bind),
                    "this memory lacks access::window_bind: register it with that, or name "
                    "another way to lease it, lease_by::registration or lease_by::connection") &&
    detail::because(By == lease_by::connection || OfMemory.contains(access::local_write) ||
                        !Rights.intersects(access::remote_write | access::remote_atomic),
                    "a lease of access::remote_write or access::remote_atomic is of memory that "
                    "was registered with access::local_write") &&
    detail::because(By != lease_by::connection || OfMemory.contains(Rights),
                    "a lease by connection gives the memory's own key: register the memory with "
                    "the remote rights that the lease shall grant");

/// Memory that a lease keeps: owned, which is moved there, or shared.
template <class Memory>
concept KeptByLease =
    detail::because(detail::HasKeep<std::remove_cvref_t<Memory>> ||
                        enable_work_memory<std::remove_cvref_t<Memory>>,
                    "a lease keeps a registered_buffer, a shared_buffer, or a part of one; of a "
                    "region that you keep, name offset and length") &&
    detail::because(detail::HasKeep<std::remove_cvref_t<Memory>> ||
                        (!std::is_lvalue_reference_v<Memory> && !std::is_const_v<Memory>),
                    "a lease that owns its memory takes it over: write std::move(buffer); it comes "
                    "back when the lease is revoked");

template <access_flags Rights, class Memory = void>
class lease;

/// How the lease of owned memory ended, and the memory.
///
///     auto [result, buffer] = std::move(lease).revoke();
template <class Memory>
struct [[nodiscard]] revoked {
  verbspp::result<void> result;
  Memory memory;
};

namespace detail {

class channel_core;
struct lease_record;

/// What is to be leased.
struct lease_request {
  ibv_mr* registered;     ///< null if that is gone
  std::uint64_t address;  ///< of the first byte, for peers
  std::byte* memory;      ///< the same, for the program
  std::uint64_t length;
  access_flags rights;
  lease_by by;
};

/// A lease, whatever its rights and memory.
class lease_owner {
 public:
  /// \param waits whether to wait until the peer has access
  /// \param memory is let go when the lease is over, and if this fails
  [[nodiscard]] static result<lease_owner> grant(channel_core& core, const lease_request& request,
                                                 bool waits, call_limit limit,
                                                 kept_memory memory) noexcept;
  /// None.
  lease_owner() noexcept = default;
  lease_owner(const lease_owner&) = delete;
  lease_owner& operator=(const lease_owner&) = delete;
  lease_owner(lease_owner&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
  lease_owner& operator=(lease_owner&&) = delete;
  ~lease_owner() { static_cast<void>(drop()); }

  void swap(lease_owner& other) noexcept { std::swap(record_, other.record_); }
  [[nodiscard]] result<void> revoke(call_limit limit) noexcept;
  /// Revokes without being asked to, and reports it if that fails.
  /// \returns whether the memory is the program's again
  bool drop() noexcept;
  [[nodiscard]] bool is_open() const noexcept;
  [[nodiscard]] result<remote_key> key() const noexcept;
  bool note_invalidated(remote_key key) noexcept;
  [[nodiscard]] bool has_lease() const noexcept { return record_ != nullptr; }
  // \pre has_lease()
  [[nodiscard]] std::uint64_t address() const noexcept;
  [[nodiscard]] std::uint64_t length() const noexcept;
  [[nodiscard]] lease_by by() const noexcept;
  [[nodiscard]] ibv_mw* window() const noexcept;
  void print(std::ostream& out, access_flags rights) const;

 private:
  explicit lease_owner(lease_record* record) noexcept : record_(record) {}

  lease_record* record_ = nullptr;  ///< null if there is none, or it was moved from, or revoked
};

/// All of memory that a lease keeps.
template <access_flags Rights, class Memory>
[[nodiscard]] lease_request whole_of(const Memory& memory, lease_by by) noexcept {
  // Work may write where the type of the program's handle is constant.
  auto* const first = reinterpret_cast<std::byte*>(
      const_cast<std::remove_const_t<typename Memory::value_type>*>(memory.data()));
  return {.registered = memory.native_handle(),
          .address = reinterpret_cast<std::uintptr_t>(first),
          .memory = first,
          .length = memory.size() * sizeof(typename Memory::value_type),
          .rights = Rights,
          .by = by};
}

/// A part of a region, which somebody else keeps.
template <access_flags Rights, access_flags OfRegion>
[[nodiscard]] result<lease_request> part_of(const memory_region<OfRegion>& region,
                                            std::size_t offset, std::size_t length,
                                            lease_by by) noexcept {
  constexpr const char* operation = "lease of a region";
  if (region.native_handle() == nullptr) return region_is_gone(operation);
  if (offset > region.length())
    return error::above_limit(operation, "offset, bytes", offset, region.length());
  if (length > region.length() - offset)
    return error::above_limit(operation, "length from the offset on, bytes", length,
                              region.length() - offset);
  return lease_request{.registered = region.native_handle(),
                       .address = region.start() + offset,
                       .memory = static_cast<std::byte*>(region.native_handle()->addr) + offset,
                       .length = length,
                       .rights = Rights,
                       .by = by};
}

/// What leases have in common, whatever their memory.
template <access_flags Rights>
class VERBSPP_CONSUMABLE lease_base {
 public:
  static constexpr access_flags rights = Rights;

  /// What to give the peer.
  /// \errors `invalid_input` if the lease was revoked, or moved from; `not_connected` if it ended
  /// with its connection, or was given back by the peer
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<remote_memory<Rights>> remote() const noexcept {
    VERBSPP_TRY(key, owner_.key());
    return remote_memory<Rights>(owner_.address(), owner_.length(), key);
  }
  /// Whether the peer has access, as far as this side knows: not after `revoke`, when the
  /// connection has ended, or when the peer has made the key void and the channel has seen its
  /// message.
  [[nodiscard]] bool is_open() const noexcept { return owner_.is_open(); }
  /// Tells the lease of a key that the peer has made void, where the channel was not told:
  /// `lease.note_invalidated(*message.received()->invalidated_rkey())`.
  /// \returns whether that was the key of this lease, which the peer has given back then
  bool note_invalidated(remote_key key) noexcept { return owner_.note_invalidated(key); }
  /// \pre the lease was neither revoked nor moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED lease_by by() const noexcept { return owner_.by(); }
  /// Its memory window; null if there is none, or no more.
  [[nodiscard]] ibv_mw* native_handle() const noexcept {
    return owner_.has_lease() ? owner_.window() : nullptr;
  }

  lease_base& operator=(lease_base&&) = delete;  // each knows what goes first

  friend std::ostream& operator<<(std::ostream& out, const lease_base& lease) {
    lease.owner_.print(out, Rights);
    return out;
  }

 protected:
  lease_base() noexcept = default;
  explicit lease_base(lease_owner owner) noexcept : owner_(std::move(owner)) {}
  lease_base(lease_base&&) noexcept = default;
  ~lease_base() = default;

  lease_owner owner_;
};

}  // namespace detail

/// What the peer of a channel was granted, until it is taken back: access to a part of memory of
/// this side, under a key of its own.
///
///     VERBSPP_TRY(part, region.window_part<access::remote_write>(0, 4096));
///     VERBSPP_TRY(lease, channel.lease(part));
///     VERBSPP_TRY(remote, lease.remote());  // for the peer
///     ...
///     VERBSPP_TRYV(lease.revoke());         // no byte of the peer's lands there any more
///
/// **Taking it back.** `revoke` returns when the device has confirmed that the peer has no access,
/// whatever the peer still believes; dropping the lease does the same. By a window, that is a local
/// invalidation, which waits for what is in the send queue before it. Where a request can't be
/// posted, or its limit has passed, the window is deallocated instead, by a system call; and so it
/// is where a lease is dropped while requests are in the send queue, since a destructor should not
/// wait for these. A lease that is dropped before its bind has been carried out waits for the bind,
/// at most for a second; then the connection is given up. What `revoke` returns is whether the
/// device took it back, and what became of the wait; only if it says `driver` the peer may have
/// access still, and the memory must not be freed.
///
/// **Who uses it too late**, a peer that still writes, reads, or does atomics: its request fails
/// with a remote access error, and its channel breaks. So does this side's, since a queue pair that
/// has refused an access goes to ERR, which it finds with its next request or receive.
///
/// **The key.** The next lease of the same bytes has another one. Windows are used again, under the
/// next of 256 keys; a window that has had 255 is replaced by a new one, which is allocated before
/// that is given up. So a key comes again after 255 leases at the earliest, and only if the device
/// gives its number out anew. (Not by `lease_by::connection`.)
///
/// **When the connection ends**, by a failure, `close`, `renew`, or with its channel, so do its
/// leases: in ERR the device refuses what the peer sends, and before the queue pair is destroyed
/// what leases have is released. A lease may outlive all that, and is revoked at no cost then.
///
/// **When the peer gives it back** by `send_with_invalidate`, the completion of the receive tells
/// the channel: `is_open` is false then, and `revoke` succeeds at once. It does not where the
/// receive was a shared one, of a hub with a pool: the message tells the program, which tells the
/// lease by `note_invalidated`. Let one side close a lease: where both invalidate its key, the
/// second one fails on most devices, and the connection breaks; the lease is over in any case.
///
/// **The memory** of a lease of a part of a region is *borrowed*: region and bytes have to live
/// until the lease is over, which is the caller's duty; where one with a window goes earlier,
/// deregistering it fails. A lease of a shared buffer, or a part of one, keeps the pages. One of an
/// owned buffer, or a part of one, has it: `lease<Rights, Memory>`, whose `revoke` gives it back.
/// Memory that the device did not give back is never freed then.
///
/// A move-only owner; assigning to one revokes what it was. A default constructed one is none, and
/// refuses what one that was moved from refuses. Thread rule: as its channel: one thread at a time
/// for both.
template <access_flags Rights>
class [[nodiscard]] VERBSPP_CONSUMABLE lease<Rights, void> : public detail::lease_base<Rights> {
 public:
  /// None, as one that was moved from.
  lease() noexcept = default;
  /// For the library.
  explicit lease(detail::lease_owner owner) noexcept
      : detail::lease_base<Rights>(std::move(owner)) {}
  lease(lease&&) noexcept = default;
  lease& operator=(lease&& other) noexcept {
    lease taken(std::move(other));
    this->owner_.swap(taken.owner_);
    return *this;
  }
  lease(const lease&) = delete;
  lease& operator=(const lease&) = delete;
  ~lease() = default;

  /// Takes it back. Blocks until the device has confirmed that; the lease is over then, whatever
  /// this returns.
  /// \errors `timed_out`, `cancelled` if the limit ended the wait, and with it the connection: the
  /// peer has no access either way; `driver` if the device did not take it back; `invalid_input` if
  /// it was revoked before, or moved from
  VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<void> revoke(
      call_limit limit = call_limit::of_channel()) noexcept {
    return this->owner_.revoke(limit);
  }
};

/// A lease that has its memory, which `revoke` gives back. Dropping it revokes, and then destroys
/// the memory.
template <access_flags Rights, class Memory>
class [[nodiscard]] VERBSPP_CONSUMABLE lease : public detail::lease_base<Rights> {
 public:
  /// For the library.
  lease(detail::lease_owner owner, Memory&& memory) noexcept
      : detail::lease_base<Rights>(std::move(owner)), memory_(std::move(memory)) {}
  lease(lease&&) noexcept = default;
  lease& operator=(lease&& other) noexcept {
    lease taken(std::move(other));
    this->owner_.swap(taken.owner_);
    std::swap(memory_, taken.memory_);
    return *this;
  }
  lease(const lease&) = delete;
  lease& operator=(const lease&) = delete;
  ~lease() {
    // Before the memory goes, or instead.
    if (!this->owner_.drop()) keep_for_ever();
  }

  /// Takes it back, as `lease<Rights>::revoke` does, and gives the memory back with what came of
  /// it.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES revoked<Memory> revoke(
      call_limit limit = call_limit::of_channel()) && noexcept {
    return {this->owner_.revoke(limit), std::move(memory_)};
  }
  // It returns the memory, so it consumes the lease.
  void revoke(call_limit = call_limit::of_channel()) & = delete;  // std::move(lease).revoke()

  /// The memory, while the peer has access to it: for what both sides look at, such as words that
  /// the peer changes by atomics.
  [[nodiscard]] Memory& memory() & noexcept VERBSPP_LIFETIMEBOUND { return memory_; }
  [[nodiscard]] const Memory& memory() const& noexcept VERBSPP_LIFETIMEBOUND { return memory_; }
  void memory() const&& = delete;  // ends with the lease: name that, or take it by revoke()

 private:
  /// Memory that the device has not given back, where nobody frees it.
  struct never_freed {
    Memory memory;
    never_freed* next;
  };
  static inline never_freed* all_never_freed = nullptr;
  void keep_for_ever() noexcept {
    if (auto* const kept = new (std::nothrow) never_freed{std::move(memory_), nullptr})
      kept->next = __atomic_exchange_n(&all_never_freed, kept, __ATOMIC_RELAXED);
  }

  Memory memory_;
};

/// How a channel grants leases: of a part for a memory window, of a part of a region, of a buffer
/// that the lease owns, or of one that it shares.
///
///     channel.lease(region.window_part<access::remote_write>(0, 64).value());
///     channel.lease<access::remote_write>(region, 0, 64);
///     channel.lease<access::remote_write>(std::move(buffer));
///     channel.lease<access::remote_write>(shared_buffer);
///     channel.lease<access::remote_write, lease_by::registration>(shared_buffer);
///
/// `lease` blocks until the peer has access, at most until its limit, or the channel's default one.
/// `post_lease` does not wait for the device: the peer has access when the request has been carried
/// out, so what `remote()` gives may go to it by any request of this channel that is posted
/// afterwards. If the device refuses then, that breaks the connection. Memory that moves into a
/// lease stays where it was if there is none.
///
/// `Channel` has `core()`, its state.
/// \errors of the channel; of the request, which breaks the connection; `timed_out`, `cancelled` if
/// the limit ended the wait, and with it the connection, unless it had passed before;
/// `not_supported` where the device or the transport can't take a window back: the message names
/// the other ways; `permission` if the channel's access flags do not allow the rights;
/// `invalid_input` for no bytes, and for memory that is gone, or of another protection domain; by
/// registration, as `register_memory`
template <class Channel>
class lease_operations {
 public:
  template <access_flags Rights>
    requires LeaseRights<Rights>
  [[nodiscard]] result<verbspp::lease<Rights>> lease(
      const window_part<Rights>& part, call_limit limit = call_limit::of_channel()) noexcept {
    return borrow<Rights>(request_of(part), true, limit);
  }
  template <access_flags Rights>
    requires LeaseRights<Rights>
  [[nodiscard]] result<verbspp::lease<Rights>> post_lease(
      const window_part<Rights>& part) noexcept {
    return borrow<Rights>(request_of(part), false, call_limit::of_channel());
  }

  /// `length` bytes from `offset` on.
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
    requires LeaseRights<Rights> && LeasableWith<OfRegion, Rights, By>
  [[nodiscard]] result<verbspp::lease<Rights>> lease(
      const memory_region<OfRegion>& region, std::size_t offset, std::size_t length,
      call_limit limit = call_limit::of_channel()) noexcept {
    VERBSPP_TRY(part, detail::part_of<Rights>(region, offset, length, By));
    return borrow<Rights>(part, true, limit);
  }
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
    requires LeaseRights<Rights> && LeasableWith<OfRegion, Rights, By>
  [[nodiscard]] result<verbspp::lease<Rights>> post_lease(const memory_region<OfRegion>& region,
                                                          std::size_t offset,
                                                          std::size_t length) noexcept {
    VERBSPP_TRY(part, detail::part_of<Rights>(region, offset, length, By));
    return borrow<Rights>(part, false, call_limit::of_channel());
  }
  // Of a temporary region, which is gone when these have returned, there is no lease.
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
  void lease(const memory_region<OfRegion>&& region, std::size_t offset, std::size_t length,
             call_limit limit = call_limit::of_channel())
      VERBSPP_DETAIL_REFUSED(LeaseRights<Rights>,
                             "this region is a temporary, which ends before the lease does: name "
                             "it, and keep it until the lease is over");
  template <access_flags Rights, lease_by By = lease_by::window, access_flags OfRegion>
  void post_lease(const memory_region<OfRegion>&& region, std::size_t offset, std::size_t length)
      VERBSPP_DETAIL_REFUSED(LeaseRights<Rights>,
                             "this region is a temporary, which ends before the lease does: name "
                             "it, and keep it until the lease is over");

  /// A buffer, or a part of one: what owns its memory is moved into the lease, what shares it is
  /// copied.
  template <access_flags Rights, lease_by By = lease_by::window, class Memory>
    requires KeptByLease<Memory> && LeaseRights<Rights> &&
             LeasableWith<std::remove_cvref_t<Memory>::rights, Rights, By>
  [[nodiscard]] auto lease(Memory&& memory, call_limit limit = call_limit::of_channel()) noexcept {
    return keep<Rights, By>(std::forward<Memory>(memory), true, limit);
  }
  template <access_flags Rights, lease_by By = lease_by::window, class Memory>
    requires KeptByLease<Memory> && LeaseRights<Rights> &&
             LeasableWith<std::remove_cvref_t<Memory>::rights, Rights, By>
  [[nodiscard]] auto post_lease(Memory&& memory) noexcept {
    return keep<Rights, By>(std::forward<Memory>(memory), false, call_limit::of_channel());
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
  [[nodiscard]] result<verbspp::lease<Rights>> borrow(const detail::lease_request& request,
                                                      bool waits, call_limit limit) noexcept {
    VERBSPP_TRY(owner, detail::lease_owner::grant(core(), request, waits, limit, {}));
    return verbspp::lease<Rights>(std::move(owner));
  }

  template <access_flags Rights, lease_by By, class Memory>
  [[nodiscard]] auto keep(Memory&& memory, bool waits, call_limit limit) noexcept {
    const auto request = detail::whole_of<Rights>(memory, By);
    if constexpr (SharedMemory<Memory>) {
      using granted = result<verbspp::lease<Rights>>;
      auto owner = detail::lease_owner::grant(core(), request, waits, limit, memory.keep());
      if (!owner.has_value()) return granted(owner.assume_error());
      return granted(verbspp::lease<Rights>(std::move(owner).assume_value()));
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

}  // namespace verbspp
