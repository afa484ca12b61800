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
#include <span>  // brings the range concepts, without all of <ranges>
#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {

/// What is registered from a dma-buf.
struct dmabuf_part {
  int file_descriptor;
  std::uint64_t offset;
};

/// What to change of a registration; the rest stays.
struct registration_change {
  std::optional<protection_domain> domain{};
  std::optional<access_flags> rights{};
  std::span<std::byte> memory{};
};

/// What elements of a region are made from, at hand without the `ibv_mr`.
struct registered_range {
  std::uint64_t start = 0;  ///< the address of the first byte in elements and for peers
  std::uint64_t length = 0;
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
};

/// Owns an `ibv_mr`, whatever its rights.
class memory_registration {
 public:
  /// \param start the address of the first byte in elements and for peers
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
  /// What one that was moved from is.
  [[nodiscard]] static memory_registration none() noexcept { return {}; }
  memory_registration(const memory_registration&) = delete;
  memory_registration(memory_registration&& other) noexcept
      : domain_(std::move(other.domain_)),
        native_(std::exchange(other.native_, nullptr)),
        range_(std::exchange(other.range_, {})),
        whose_(other.whose_),
        has_other_addresses_(std::exchange(other.has_other_addresses_, false)) {}
  memory_registration& operator=(const memory_registration&) = delete;
  /// What was registered before is deregistered here.
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
    has_other_addresses_ = false;  // what was told of them stays true
    range_ = {};
    return std::exchange(native_, nullptr);
  }
  /// After a failure it is either as before, or gone.
  [[nodiscard]] result<void> change(const registration_change& changes) noexcept;
  [[nodiscard]] ibv_mr* native() const noexcept { return native_; }
  [[nodiscard]] const protection_domain& domain() const noexcept { return domain_; }
  /// Empty if it was moved from or released.
  [[nodiscard]] const registered_range& range() const noexcept { return range_; }

 private:
  memory_registration() noexcept;
  memory_registration(protection_domain domain, ibv_mr* native, std::uint64_t start,
                      ownership whose = ownership::taken) noexcept;
  /// What is watched has to know addresses that are not the program's.
  void tell_of_addresses() noexcept;
  void forget_addresses() noexcept;

  protection_domain domain_;  // that of the regions themselves, where there is one on top of it
  ibv_mr* native_;
  registered_range range_;
  ownership whose_;
  bool has_other_addresses_ = false;
};

template <access_flags Rights>
using registration_of = dependent<memory_registration, Rights>;

[[nodiscard]] error region_is_gone(const char* operation) noexcept;
/// Why there is no such element of a region, or no such part for a window, which may be longer.
[[nodiscard]] error no_such_part(const registered_range& range, const char* operation,
                                 std::size_t offset, std::size_t length) noexcept;

/// Whether a part lies within a region, which one that is gone has none of.
[[nodiscard]] VERBSPP_DATA_PATH bool is_within(const registered_range& range, std::size_t offset,
                                               std::size_t length) noexcept {
  return offset <= range.length && length <= range.length - offset && range.length != 0;
}

/// A part of a region as a scatter or gather element, if it lies inside.
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

/// What all regions are, whatever memory they register: bytes that the device may access, with the
/// rights in the type.
///
/// A move-only owner of the registration, not of the memory: the memory has to outlive the region,
/// and both have to outlive all work that uses them. Keeps its protection domain alive; elements
/// and remote handles do not say which domain they come from, so one that is used with a queue pair
/// of another domain is found by the device (a local protection or remote access error). Thread
/// rule: the const functions may be called from any thread.
///
/// A region that was moved from, or deregistered, has no bytes: its length, start and keys are 0,
/// its native handle is null, and what is made of a region is refused.
template <access_flags Rights>
class VERBSPP_CONSUMABLE registered_region {
  // The same, but instantiated only where it is used.
  template <class Value>
  using result = verbspp::result<detail::dependent<Value, Rights>>;

 public:
  static constexpr access_flags rights = Rights;
  /// With the rights of this region that are for peers.
  using handle_for_peers = remote_memory<Rights & access::any_remote>;

  [[nodiscard]] std::size_t length() const noexcept { return registration_.range().length; }
  [[nodiscard]] local_key lkey() const noexcept { return local_key(registration_.range().lkey); }
  /// The key by which peers name the region.
  [[nodiscard]] remote_key rkey() const noexcept
    requires RemotelyAccessible<Rights>
  {
    return remote_key(registration_.range().rkey);
  }
  /// The address of the first byte in elements and for peers: that of the memory, unless the
  /// region was registered with another one.
  [[nodiscard]] std::uint64_t start() const noexcept { return registration_.range().start; }

  /// `length` bytes from `offset` on, for the device to read.
  /// \errors `invalid_input` if that is not within the region, above 2^32 - 1 bytes, or the region
  /// was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<gather_element> gather(
      std::size_t offset, std::size_t length) const noexcept VERBSPP_LIFETIMEBOUND {
    return detail::element_of<gather_element>(registration_.range(), "memory_region::gather",
                                              offset, length);
  }
  /// The whole region.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<gather_element> gather() const noexcept
      VERBSPP_LIFETIMEBOUND {
    return gather(0, length());
  }
  /// The same for hot paths: the bounds are only asserted, in debug builds.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED gather_element
  gather_unchecked(std::size_t offset, std::size_t length) const noexcept VERBSPP_LIFETIMEBOUND {
    return detail::element_of_unchecked<gather_element>(registration_.range(), offset, length);
  }

  /// `length` bytes from `offset` on, for the device to write.
  /// \errors `invalid_input` if that is not within the region, above 2^32 - 1 bytes, or the region
  /// was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_DATA_PATH result<scatter_element> scatter(
      std::size_t offset, std::size_t length) const noexcept VERBSPP_LIFETIMEBOUND
    requires LocallyWritable<Rights>
  {
    return detail::element_of<scatter_element>(registration_.range(), "memory_region::scatter",
                                               offset, length);
  }
  /// The whole region.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<scatter_element> scatter() const noexcept
      VERBSPP_LIFETIMEBOUND
    requires LocallyWritable<Rights>
  {
    return scatter(0, length());
  }
  /// The same for hot paths: the bounds are only asserted, in debug builds.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED scatter_element
  scatter_unchecked(std::size_t offset, std::size_t length) const noexcept VERBSPP_LIFETIMEBOUND
    requires LocallyWritable<Rights>
  {
    return detail::element_of_unchecked<scatter_element>(registration_.range(), offset, length);
  }

  /// What to give a peer so that it can access this memory.
  /// \errors `invalid_input` if the region was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED result<handle_for_peers> remote() const noexcept
    requires RemotelyAccessible<Rights>
  {
    if (length() == 0) return detail::region_is_gone("memory_region::remote");
    return handle_for_peers(start(), length(), rkey());
  }

  /// `length` bytes from `offset` on, for a memory window that gives peers these rights, which the
  /// region itself need not have: `region.window_part<access::remote_read>(0, 64)`. Of no bytes, a
  /// window of type 1 is bound to nothing.
  /// \errors `invalid_input` if that is not within the region, or the region was moved from
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

  /// Gives the registration up (`ibv_dereg_mr`), as the destructor does, but reports a failure. The
  /// memory may be used by the device still if that fails; so it should not be freed then.
  /// \errors `busy`, or `invalid_input` by some drivers, if a memory window is bound to it;
  /// `driver`; `invalid_input` if the registration is borrowed, or the region was moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<void> deregister() && noexcept {
    return registration_.deregister();
  }
  /// Gives the registration away as it is: whoever takes it deregisters it, before the protection
  /// domain. Null if the region was moved from.
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
  /// Null if the region was moved from.
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

/// Memory that can be registered: contiguous, and not gone at the end of the expression.
template <class Memory>
concept RegistrableMemory =
    std::ranges::contiguous_range<Memory> && std::ranges::sized_range<Memory> &&
    std::ranges::borrowed_range<Memory> &&
    detail::because(std::is_trivially_copyable_v<std::ranges::range_value_t<Memory>>,
                    "the device copies bytes: only memory of trivially copyable objects can be "
                    "registered") &&
    detail::because(
        !std::is_volatile_v<std::remove_reference_t<std::ranges::range_reference_t<Memory>>>,
        "volatile memory cannot be registered, since regions and elements would forget that it is: "
        "register the objects as they are, and look at them through std::atomic_ref");

/// Memory that can be registered with these rights: the device must not write to constants.
template <class Memory, access_flags Rights>
concept WritableAsFarAs = detail::because(
    !Rights.contains(access::local_write) ||
        !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Memory>>>,
    "constant memory cannot be registered with access::local_write");

/// Rights that a region of these rights can get without its memory, which may be constant.
template <access_flags Rights, access_flags NewRights>
concept AddsNoWrites = detail::because(
    Rights.contains(access::local_write) || !NewRights.contains(access::local_write),
    "the memory of a region without access::local_write may be constant: to add it, give the "
    "memory as well, change_rights<...>(memory)");

namespace detail {

[[nodiscard]] inline error no_memory_to_register() noexcept {
  return {error_kind::invalid_input, "ibv_rereg_mr", "there is no memory of 0 bytes to register"};
}

/// The bytes of a range, writable; whether they may be written, the rights say.
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
  /// For the library: takes over a registration that has these rights.
  explicit memory_region(detail::memory_registration registration) noexcept
      : registered_region<Rights>(std::move(registration)) {}

  /// Takes over, or borrows, what was registered in this protection domain, with at least these
  /// rights, which is the caller's word. An `ibv_mr` does not tell the address that its first byte
  /// has in elements and for peers: give it, unless it is the memory's own.
  /// \errors `invalid_input` for null, or a registration in another protection domain
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

  // Changing a registration (`ibv_rereg_mr`) is cheaper than making another one where the device
  // helps, and work in flight that uses it fails in any case. It consumes the region: on success it
  // lives on in the result, maybe under other keys, so that peers need a new handle. On failure the
  // region is as before, or, if the device has given it up (`native_handle()` is null then),
  // deregistered.

  /// \errors `not_supported` where the driver cannot, `invalid_input` (above all if the region was
  /// moved from, or is borrowed), `busy`, `driver`; as `register_memory`
  template <access_flags NewRights>
    requires RegistrableRights<NewRights> && AddsNoWrites<Rights, NewRights>
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<memory_region<NewRights>>
  change_rights() && noexcept {
    VERBSPP_TRYV(this->registration_.change({.rights = NewRights}));
    return memory_region<NewRights>(std::move(this->registration_));
  }
  /// Changes the rights and the memory at once; the memory may be the former. This can add local
  /// write.
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
  /// \errors as `change_rights`, and `invalid_input` for a domain of another context
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES result<memory_region>
  change_protection_domain(const class protection_domain& domain) && noexcept {
    VERBSPP_TRYV(this->registration_.change({.domain = domain}));
    return std::move(*this);
  }
  /// Registers other memory instead; it starts at its own address.
  /// \errors as `change_rights`
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

/// Registers memory of the caller's (`ibv_reg_mr`), such as a span, array or vector:
/// `register_memory<access::local_write>(pd, buffer)`.
///
/// The memory has to outlive the region, and must not move (a vector must not grow).
/// \errors `invalid_input` if it is empty; `resource_exhausted` above all when more memory would be
/// locked than the process may (RLIMIT_MEMLOCK: the message tells); `driver` (EFAULT) if it is not
/// mapped, or not writable although local write is asked for; `not_supported` for
/// access::on_demand where the device cannot
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

/// The same, with the address that the first byte has in elements and for peers
/// (`ibv_reg_mr_iova`): so that, for instance, the handles that peers hold start at 0, or stay the
/// same wherever the memory is. `bytes()` is where the program finds it.
/// \errors as `register_memory`, and `invalid_input` if `start` and the memory's address differ
/// within a page, or the end would be beyond 2^64
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
