// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/keys.hpp>
#include <verbspp/memory/protection_domain.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/scatter_gather.hpp>
#include <verbspp/memory/window_part.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>  // declares the range concepts, and is smaller than <ranges>
#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {

/// The part of a dma-buf that is registered.
struct dmabuf_part {
  int file_descriptor;
  std::uint64_t offset;
};

/// The changes to make to a registration. A property that is empty here is not changed.
struct registration_change {
  std::optional<protection_domain> domain{};
  std::optional<access_flags> rights{};
  std::span<std::byte> memory{};
};

/// The parts of a registration that scatter-gather elements and handles for peers need. They are
/// stored here so that the `ibv_mr` need not be read for each element.
struct registered_range {
  std::uint64_t start = 0;  ///< the address by which elements and peers refer to the first byte
  std::uint64_t length = 0;
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
};

/// Owns or borrows an `ibv_mr`. The rights are not part of this type.
class memory_registration {
 public:
  /// Registers memory that belongs to the program, or a part of a dma-buf.
  /// \param start the address by which scatter-gather elements and peers refer to the first byte
  [[nodiscard]] static result<memory_registration> create(const protection_domain& domain,
                                                          void* address, std::size_t length,
                                                          std::uint64_t start,
                                                          access_flags rights) noexcept;
  [[nodiscard]] static result<memory_registration> create(const protection_domain& domain,
                                                          const dmabuf_part& part,
                                                          std::size_t length, std::uint64_t start,
                                                          access_flags rights) noexcept;
  [[nodiscard]] static result<memory_registration> from_native(
      const protection_domain& domain, ibv_mr* native, ownership whose,
      std::optional<std::uint64_t> start) noexcept;
  /// Returns an empty registration, which is in the same state as a moved-from one.
  [[nodiscard]] static memory_registration none() noexcept { return {}; }
  memory_registration(const memory_registration&) = delete;
  memory_registration(memory_registration&& other) noexcept
      : domain_(std::move(other.domain_)),
        native_(std::exchange(other.native_, nullptr)),
        range_(std::exchange(other.range_, {})),
        whose_(other.whose_),
        has_other_addresses_(std::exchange(other.has_other_addresses_, false)) {}
  memory_registration& operator=(const memory_registration&) = delete;
  /// Deregisters the previous registration, unless it was borrowed.
  memory_registration& operator=(memory_registration&& other) noexcept {
    memory_registration taken(std::move(other));
    std::swap(domain_, taken.domain_);
    std::swap(native_, taken.native_);
    std::swap(range_, taken.range_);
    std::swap(whose_, taken.whose_);
    std::swap(has_other_addresses_, taken.has_other_addresses_);
    return *this;
  }
  ~memory_registration();

  [[nodiscard]] result<void> deregister() noexcept;
  [[nodiscard]] ibv_mr* release() noexcept {
    has_other_addresses_ = false;  // the addresses stay excluded from memory watching
    range_ = {};
    return std::exchange(native_, nullptr);
  }
  /// After a failure, the registration is either unchanged or empty.
  [[nodiscard]] result<void> change(const registration_change& changes) noexcept;
  [[nodiscard]] ibv_mr* native() const noexcept { return native_; }
  [[nodiscard]] const protection_domain& domain() const noexcept { return domain_; }
  /// Empty if the registration was moved from, released or deregistered.
  [[nodiscard]] const registered_range& range() const noexcept { return range_; }

 private:
  memory_registration() noexcept;
  memory_registration(protection_domain domain, ibv_mr* native, std::uint64_t start,
                      ownership whose = ownership::taken) noexcept;
  /// Excludes the addresses in the region's scatter-gather elements from memory watching
  /// (watched_memory.hpp), because they are not addresses in the program. `forget_addresses` undoes
  /// this.
  void tell_of_addresses() noexcept;
  void forget_addresses() noexcept;

  protection_domain domain_;  // for a parent domain, the domain from which it was created
  ibv_mr* native_;
  registered_range range_;
  ownership whose_;
  bool has_other_addresses_ = false;
};

template <access_flags Rights>
using registration_of = dependent<memory_registration, Rights>;

[[nodiscard]] error region_is_gone(const char* operation) noexcept;
/// Returns the error for a part that does not lie within its region, or is too long for a
/// scatter-gather element. A part to which a memory window is bound may be longer than an element.
[[nodiscard]] error no_such_part(const registered_range& range, const char* operation,
                                 std::size_t offset, std::size_t length) noexcept;

/// True if a part lies within a region; false for a region that was deregistered.
[[nodiscard]] VERBSPP_DATA_PATH bool is_within(const registered_range& range, std::size_t offset,
                                               std::size_t length) noexcept {
  return offset <= range.length && length <= range.length - offset && range.length != 0;
}

/// Returns a part of a region as a scatter or gather element, if it lies within the region.
template <class Element>
[[nodiscard]] VERBSPP_DATA_PATH result<Element> element_of(const registered_range& range,
                                                           const char* operation,
                                                           std::size_t offset,
                                                           std::size_t length) noexcept {
  if (!is_within(range, offset, length) || length > UINT32_MAX) [[unlikely]]
    return no_such_part(range, operation, offset, length);
  return Element::from_native(
      {range.start + offset, static_cast<std::uint32_t>(length), range.lkey});
}

template <class Element>
[[nodiscard]] VERBSPP_DATA_PATH Element element_of_unchecked(const registered_range& range,
                                                             std::size_t offset,
                                                             std::size_t length) noexcept {
  assert(element_of<Element>(range, "unchecked element", offset, length).has_value());
  return Element::from_native(
      {range.start + offset, static_cast<std::uint32_t>(length), range.lkey});
}

void print(std::ostream& out, const char* kind, const memory_registration& registration,
           access_flags rights);

}  // namespace detail

/// The base class of memory regions: registered bytes that the device may access. The rights are
/// part of the type.
///
/// A move-only owner of the registration (unless it is borrowed), but not of the memory. The memory
/// must outlive the region, and both must outlive all requests that use them. The region keeps its
/// protection domain alive. Elements and remote handles do not contain their domain, so only the
/// device can detect that an element or handle is used with a queue pair of a different domain. It
/// then reports a local protection error or a remote access error. Thread rule: the const functions
/// may be called from any thread.
///
/// A region that was moved from or deregistered has no bytes: its length, start and keys are 0, its
/// native handle is null, and making elements, window parts or handles for peers from it returns an
/// error.
template <access_flags Rights>
class VERBSPP_CONSUMABLE registered_region {
  // The same type as `verbspp::result<Value>`, but instantiated only where it is used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Rights>>;

 public:
  static constexpr access_flags rights = Rights;
  /// A handle that grants peers the region's remote rights.
  using handle_for_peers = remote_memory<Rights & access::any_remote>;

  [[nodiscard]] std::size_t length() const noexcept { return registration_.range().length; }
  [[nodiscard]] local_key lkey() const noexcept { return local_key(registration_.range().lkey); }
  /// The key by which peers refer to the region.
  [[nodiscard]] remote_key rkey() const noexcept
    requires RemotelyAccessible<Rights>
  {
    return remote_key(registration_.range().rkey);
  }
  /// The address by which scatter-gather elements and peers refer to the first byte: the memory's
  /// own address (for a dma-buf, the offset), unless the region was registered with a different
  /// one.
  [[nodiscard]] std::uint64_t start() const noexcept { return registration_.range().start; }

  /// Returns the `length` bytes at `offset` as a gather element, for the device to read.
  /// \errors `invalid_input` if they are not within the region, if they are more than 2^32 - 1
  /// bytes, or if the region was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<gather_element> gather(
      std::size_t offset, std::size_t length) const noexcept VERBSPP_LIFETIMEBOUND {
    return detail::element_of<gather_element>(registration_.range(), "memory_region::gather",
                                              offset, length);
  }
  /// Returns the whole region as a gather element.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<gather_element> gather() const noexcept
      VERBSPP_LIFETIMEBOUND {
    return gather(0, length());
  }
  /// Like `gather`, but returns the element itself instead of a `result`, for hot paths. The bounds
  /// are checked only by an assertion in debug builds.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED gather_element
  gather_unchecked(std::size_t offset, std::size_t length) const noexcept VERBSPP_LIFETIMEBOUND {
    return detail::element_of_unchecked<gather_element>(registration_.range(), offset, length);
  }

  /// Returns the `length` bytes at `offset` as a scatter element, for the device to write.
  /// \errors `invalid_input` if they are not within the region, if they are more than 2^32 - 1
  /// bytes, or if the region was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<scatter_element> scatter(
      std::size_t offset, std::size_t length) const noexcept VERBSPP_LIFETIMEBOUND
    requires LocallyWritable<Rights>
  {
    return detail::element_of<scatter_element>(registration_.range(), "memory_region::scatter",
                                               offset, length);
  }
  /// Returns the whole region as a scatter element.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<scatter_element> scatter() const noexcept
      VERBSPP_LIFETIMEBOUND
    requires LocallyWritable<Rights>
  {
    return scatter(0, length());
  }
  /// Like `scatter`, but returns the element itself instead of a `result`, for hot paths. The
  /// bounds are checked only by an assertion in debug builds.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED scatter_element
  scatter_unchecked(std::size_t offset, std::size_t length) const noexcept VERBSPP_LIFETIMEBOUND
    requires LocallyWritable<Rights>
  {
    return detail::element_of_unchecked<scatter_element>(registration_.range(), offset, length);
  }

  /// The handle that a peer needs to access this memory.
  /// \errors `invalid_input` if the region was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<handle_for_peers> remote() const noexcept
    requires RemotelyAccessible<Rights>
  {
    if (length() == 0) return detail::region_is_gone("memory_region::remote");
    return handle_for_peers(start(), length(), rkey());
  }

  /// Returns the `length` bytes at `offset` as a part to which a memory window can be bound:
  /// `region.window_part<access::remote_read>(0, 64)`. The window then grants peers the rights
  /// `OfWindow`, which the region itself need not have. A part of zero bytes unbinds a window of
  /// type 1.
  /// \errors `invalid_input` if the bytes are not within the region, or the region was moved from
  template <access_flags OfWindow>
    requires BindableToWindows<Rights> && WindowRights<OfWindow> &&
             WindowRightsOfRegion<OfWindow, Rights>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<verbspp::window_part<OfWindow>> window_part(
      std::size_t offset, std::size_t length) const noexcept {
    if (!detail::is_within(registration_.range(), offset, length))
      return detail::no_such_part(registration_.range(), "memory_region::window_part", offset,
                                  length);
    return verbspp::window_part<OfWindow>::from_native(native(), start() + offset, length);
  }

  /// Deregisters the memory (`ibv_dereg_mr`) as the destructor does, but returns any error. After
  /// an error, the memory should not be freed, because the device may still use it.
  /// \errors `busy` (with some drivers, `invalid_input`) if a memory window is bound to the region;
  /// `driver`; `invalid_input` if the registration is borrowed, or the region was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<void> deregister() && noexcept {
    return registration_.deregister();
  }
  /// Returns the native registration, and ends its use by the library. Unless it was borrowed, the
  /// caller must deregister it before the protection domain is deallocated. Returns null if the
  /// region was moved from.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES ibv_mr* release() && noexcept {
    return registration_.release();
  }

  [[nodiscard]] const class protection_domain& protection_domain() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    return registration_.domain();
  }
  [[nodiscard]] class protection_domain protection_domain() && noexcept {
    return registration_.domain();
  }
  /// Null if the region was moved from or deregistered.
  [[nodiscard]] ibv_mr* native_handle() const noexcept { return native(); }

 protected:
  explicit registered_region(detail::memory_registration registration) noexcept
      : registration_(std::move(registration)) {}
  registered_region(registered_region&&) noexcept = default;
  registered_region& operator=(registered_region&&) noexcept = default;
  ~registered_region() = default;

  [[nodiscard]] ibv_mr* native() const noexcept { return registration_.native(); }

  detail::registration_of<Rights> registration_;
};

/// Memory that can be registered: a contiguous range whose elements still exist after the
/// expression in which the range is passed.
template <class Memory>
concept RegistrableMemory =
    std::ranges::contiguous_range<Memory> && std::ranges::sized_range<Memory> &&
    std::ranges::borrowed_range<Memory> &&
    detail::because(std::is_trivially_copyable_v<std::ranges::range_value_t<Memory>>,
                    "the device copies bytes: only memory of trivially copyable objects can be "
                    "registered") &&
    detail::because(
        !std::is_volatile_v<std::remove_reference_t<std::ranges::range_reference_t<Memory>>>,
        "volatile memory cannot be registered, because regions and elements would lose the "
        "qualifier: register objects that are not volatile, and access them through "
        "std::atomic_ref");

/// Memory that can be registered with these rights: constant memory cannot be registered for local
/// writes.
template <class Memory, access_flags Rights>
concept WritableAsFarAs = detail::because(
    !Rights.contains(access::local_write) ||
        !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Memory>>>,
    "constant memory cannot be registered with access::local_write");

/// True if a region with `Rights` can change to `NewRights` even though the caller does not pass
/// the memory. Local write cannot be added in this way, because the memory may be constant.
template <access_flags Rights, access_flags NewRights>
concept AddsNoWrites = detail::because(
    Rights.contains(access::local_write) || !NewRights.contains(access::local_write),
    "the memory of a region without access::local_write may be constant: to add that right, pass "
    "the memory as well, as in change_rights<...>(memory)");

namespace detail {

[[nodiscard]] inline error no_memory_to_register() noexcept {
  return {error_kind::invalid_input, "ibv_rereg_mr", "memory of 0 bytes cannot be registered"};
}

/// Returns the bytes of a range, with any `const` cast away. Whether the device may write them
/// depends on the rights of the registration.
template <class Memory>
[[nodiscard]] std::span<std::byte> bytes_of(Memory&& memory) noexcept {
  using object = std::ranges::range_value_t<Memory>;
  return {reinterpret_cast<std::byte*>(const_cast<object*>(std::ranges::data(memory))),
          std::ranges::size(memory) * sizeof(object)};
}

}  // namespace detail

/// A region of the program's own memory.
template <access_flags Rights = access::local_read>
class VERBSPP_CONSUMABLE memory_region : public registered_region<Rights> {
 public:
  /// Used by the library only: takes ownership of a registration that has these rights.
  explicit memory_region(detail::memory_registration registration) noexcept
      : registered_region<Rights>(std::move(registration)) {}

  /// Takes ownership of a registration in this protection domain, or borrows it. The caller vouches
  /// that the registration has at least these rights. `start` is the address by which elements and
  /// peers refer to the first byte. An `ibv_mr` does not contain this address, so pass it if it
  /// differs from the address of the memory.
  /// \errors `invalid_input` for null, or a registration in a different protection domain
  [[nodiscard]] static result<memory_region> from_native(
      const class protection_domain& domain, ibv_mr* native, ownership whose,
      std::optional<std::uint64_t> start = {}) noexcept {
    VERBSPP_TRY(registration,
                detail::registration_of<Rights>::from_native(domain, native, whose, start));
    return memory_region(std::move(registration));
  }

  /// The registered memory; empty if the region was moved from, or deregistered.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    const ibv_mr* const native = this->native();
    if (native == nullptr) return {};
    return {static_cast<const std::byte*>(native->addr), native->length};
  }

  // If the device supports it, changing a registration (`ibv_rereg_mr`) is cheaper than registering
  // the memory again. Requests in flight that use the region may fail. These functions consume the
  // region. On success, the result contains the region, possibly with different keys, so peers need
  // a new handle. On failure, the region is unchanged, unless the failed call has made it unusable:
  // in that case, it is empty (`native_handle()` is null), and the error says whether the memory
  // could be deregistered.

  /// Changes the rights.
  /// \errors `not_supported` if the driver lacks support, `invalid_input` (mainly if the region was
  /// moved from or is borrowed), `busy`, `driver`; those of `register_memory`
  template <access_flags NewRights>
    requires RegistrableRights<NewRights> && AddsNoWrites<Rights, NewRights>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<memory_region<NewRights>>
  change_rights() && noexcept {
    VERBSPP_TRYV(this->registration_.change({.rights = NewRights}));
    return memory_region<NewRights>(std::move(this->registration_));
  }
  /// Changes the rights and the memory together. The memory may be the same as before. Unlike the
  /// function above, this one can add local write.
  template <access_flags NewRights, class Memory>
    requires RegistrableRights<NewRights> && RegistrableMemory<Memory> &&
             WritableAsFarAs<Memory, NewRights>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<memory_region<NewRights>>
  change_rights(Memory&& memory) && noexcept {
    const std::span<std::byte> bytes = detail::bytes_of(memory);
    if (bytes.empty()) return detail::no_memory_to_register();
    VERBSPP_TRYV(this->registration_.change({.rights = NewRights, .memory = bytes}));
    return memory_region<NewRights>(std::move(this->registration_));
  }
  /// Moves the region to a different protection domain.
  /// \errors those of `change_rights`, and `invalid_input` for a domain of a different context
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<memory_region>
  change_protection_domain(const class protection_domain& domain) && noexcept {
    VERBSPP_TRYV(this->registration_.change({.domain = domain}));
    return std::move(*this);
  }
  /// Registers other memory in place of the current memory. From then on, scatter-gather elements
  /// and peers must use the addresses of the new memory.
  /// \errors those of `change_rights`
  template <class Memory>
    requires RegistrableMemory<Memory> && WritableAsFarAs<Memory, Rights>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<memory_region> change_memory(
      Memory&& memory) && noexcept {
    const std::span<std::byte> bytes = detail::bytes_of(memory);
    if (bytes.empty()) return detail::no_memory_to_register();
    VERBSPP_TRYV(this->registration_.change({.memory = bytes}));
    return std::move(*this);
  }

  friend std::ostream& operator<<(std::ostream& out, const memory_region& region) {
    detail::print(out, "memory region", region.registration_, Rights);
    return out;
  }
};

/// Registers memory that the caller owns (`ibv_reg_mr`), such as a span, an array or a vector:
/// `register_memory<access::local_write>(pd, buffer)`.
///
/// The memory must outlive the region, and must not move (a vector must not grow).
/// \errors `invalid_input` if the memory is empty; `resource_exhausted`, mainly if the process
/// would lock more memory than it is allowed to (RLIMIT_MEMLOCK; the message says so); `permission`
/// if it may lock none; `driver` (EFAULT) if the memory is not mapped, or not writable although
/// local write or window_bind is requested; `not_supported` for access::on_demand or RDMA flush if
/// the device lacks support (for RDMA flush on older kernels, `invalid_input`)
template <access_flags Rights = access::local_read, class Memory>
  requires RegistrableRights<Rights> && RegistrableMemory<Memory> && WritableAsFarAs<Memory, Rights>
[[nodiscard]] result<memory_region<Rights>> register_memory(const protection_domain& domain,
                                                            Memory&& memory) noexcept {
  const std::span<std::byte> bytes = detail::bytes_of(memory);
  VERBSPP_TRY(registration, detail::registration_of<Rights>::create(
                                domain, bytes.data(), bytes.size(),
                                reinterpret_cast<std::uintptr_t>(bytes.data()), Rights));
  return memory_region<Rights>(std::move(registration));
}

/// Like `register_memory`, but elements and peers refer to the first byte by the address `start`
/// (`ibv_reg_mr_iova`). For instance, the addresses that peers use can start at 0, so that they do
/// not depend on the address of the memory. `bytes()` returns the memory at its address in the
/// program.
/// \errors those of `register_memory`, and `invalid_input` if `start` and the memory's address
/// differ modulo the page size, or the end would be at or beyond 2^64
template <access_flags Rights = access::local_read, class Memory>
  requires RegistrableRights<Rights> && RegistrableMemory<Memory> && WritableAsFarAs<Memory, Rights>
[[nodiscard]] result<memory_region<Rights>> register_memory_at(const protection_domain& domain,
                                                               std::uint64_t start,
                                                               Memory&& memory) noexcept {
  const std::span<std::byte> bytes = detail::bytes_of(memory);
  VERBSPP_TRY(registration, detail::registration_of<Rights>::create(domain, bytes.data(),
                                                                    bytes.size(), start, Rights));
  return memory_region<Rights>(std::move(registration));
}

}  // namespace verbspp
