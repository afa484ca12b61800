// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/error.hpp>
#include <verbspp/verbs/access.hpp>
#include <verbspp/verbs/protection_domain.hpp>
#include <verbspp/verbs/remote_memory.hpp>
#include <verbspp/verbs/scatter_gather.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>  // brings the range concepts, without all of <ranges>
#include <type_traits>
#include <utility>

namespace verbspp {

namespace detail {

/// Owns an `ibv_mr`, whatever its rights.
class memory_registration {
 public:
  [[nodiscard]] static result<memory_registration> create(const protection_domain& domain,
                                                          void* address, std::size_t length,
                                                          access_flags rights) noexcept;
  memory_registration(memory_registration&& other) noexcept
      : domain_(std::move(other.domain_)), native_(std::exchange(other.native_, nullptr)) {}
  memory_registration& operator=(memory_registration&& other) noexcept {
    std::swap(domain_, other.domain_);
    std::swap(native_, other.native_);
    return *this;
  }
  ~memory_registration();

  [[nodiscard]] result<void> release() noexcept;
  [[nodiscard]] ibv_mr* native() const noexcept { return native_; }
  [[nodiscard]] const protection_domain& domain() const noexcept { return domain_; }

 private:
  memory_registration(protection_domain domain, ibv_mr* native) noexcept
      : domain_(std::move(domain)), native_(native) {}

  protection_domain domain_;
  ibv_mr* native_;
};

/// The part of a region as a scatter-gather element, if it lies inside.
[[nodiscard]] inline result<ibv_sge> element_of(const ibv_mr* region, const char* operation,
                                                std::size_t offset, std::size_t length) noexcept {
  if (offset > region->length)
    return error::above_limit(operation, "offset, bytes", offset, region->length);
  if (length > region->length - offset)
    return error::above_limit(operation, "length from the offset on, bytes", length,
                              region->length - offset);
  if (length > UINT32_MAX)
    return error::above_limit(operation, "length of one element, bytes", length, UINT32_MAX,
                              "split it into several elements or requests");
  return ibv_sge{reinterpret_cast<std::uintptr_t>(region->addr) + offset,
                 static_cast<std::uint32_t>(length), region->lkey};
}

[[nodiscard]] inline ibv_sge element_of_unchecked(const ibv_mr* region, std::size_t offset,
                                                  std::size_t length) noexcept {
  assert(element_of(region, "unchecked element", offset, length).has_value());
  return {reinterpret_cast<std::uintptr_t>(region->addr) + offset,
          static_cast<std::uint32_t>(length), region->lkey};
}

}  // namespace detail

/// Memory that the device may access, with the rights in the type.
///
/// A move-only owner of the registration, not of the memory: the memory has to outlive the region,
/// and both have to outlive all work that uses them. Keeps its protection domain alive. Thread
/// rule: the const functions may be called from any thread.
template <access_flags Rights = access::local_read>
class memory_region {
 public:
  static constexpr access_flags rights = Rights;

  /// For the library: takes over a registration that has these rights.
  explicit memory_region(detail::memory_registration registration) noexcept
      : registration_(std::move(registration)) {}

  /// The registered memory.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(native()->addr), native()->length};
  }
  [[nodiscard]] std::size_t length() const noexcept { return native()->length; }
  [[nodiscard]] std::uint32_t lkey() const noexcept { return native()->lkey; }

  /// `length` bytes from `offset` on, for the device to read.
  /// \errors `invalid_input` if that is not within the region, or above 2^32 - 1 bytes
  [[nodiscard]] result<gather_element> gather(std::size_t offset,
                                              std::size_t length) const noexcept {
    VERBSPP_TRY(element, detail::element_of(native(), "memory_region::gather", offset, length));
    return gather_element::from_native(element);
  }
  /// The whole region.
  [[nodiscard]] result<gather_element> gather() const noexcept { return gather(0, length()); }
  /// The same for hot paths: the bounds are only asserted, in debug builds.
  [[nodiscard]] gather_element gather_unchecked(std::size_t offset,
                                                std::size_t length) const noexcept {
    return gather_element::from_native(detail::element_of_unchecked(native(), offset, length));
  }

  /// `length` bytes from `offset` on, for the device to write.
  /// \errors `invalid_input` if that is not within the region, or above 2^32 - 1 bytes
  [[nodiscard]] result<scatter_element> scatter(std::size_t offset,
                                                std::size_t length) const noexcept
    requires LocallyWritable<Rights>
  {
    VERBSPP_TRY(element, detail::element_of(native(), "memory_region::scatter", offset, length));
    return scatter_element::from_native(element);
  }
  /// The whole region.
  [[nodiscard]] result<scatter_element> scatter() const noexcept
    requires LocallyWritable<Rights>
  {
    return scatter(0, length());
  }
  /// The same for hot paths: the bounds are only asserted, in debug builds.
  [[nodiscard]] scatter_element scatter_unchecked(std::size_t offset,
                                                  std::size_t length) const noexcept
    requires LocallyWritable<Rights>
  {
    return scatter_element::from_native(detail::element_of_unchecked(native(), offset, length));
  }

  /// What to give a peer so that it can access this memory.
  [[nodiscard]] remote_memory<Rights & access::all_remote> remote() const noexcept
    requires RemotelyAccessible<Rights>
  {
    return {reinterpret_cast<std::uintptr_t>(native()->addr), native()->length, native()->rkey};
  }

  /// Gives the registration up (`ibv_dereg_mr`), as the destructor does, but reports a failure.
  /// \errors `busy` if a memory window is bound to it, `driver`
  [[nodiscard]] result<void> deregister() && noexcept { return registration_.release(); }

  [[nodiscard]] const class protection_domain& protection_domain() const noexcept {
    return registration_.domain();
  }
  [[nodiscard]] ibv_mr* native_handle() const noexcept { return native(); }

 private:
  [[nodiscard]] ibv_mr* native() const noexcept { return registration_.native(); }

  detail::memory_registration registration_;
};

/// Memory that can be registered: contiguous, and not gone at the end of the expression.
template <class Memory>
concept RegistrableMemory =
    std::ranges::contiguous_range<Memory> && std::ranges::sized_range<Memory> &&
    std::ranges::borrowed_range<Memory> &&
    detail::because(std::is_trivially_copyable_v<std::ranges::range_value_t<Memory>>,
                    "the device copies bytes: only memory of trivially copyable objects can be "
                    "registered");

/// Memory that can be registered with these rights: the device must not write to constants.
template <class Memory, access_flags Rights>
concept WritableAsFarAs = detail::because(
    !Rights.contains(access::local_write) ||
        !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Memory>>>,
    "constant memory cannot be registered with access::local_write");

/// Registers memory of the caller's (`ibv_reg_mr`), such as a span, array or vector:
/// `register_memory<access::local_write>(pd, buffer)`.
///
/// The memory has to outlive the region, and must not move (a vector must not grow).
/// \errors `invalid_input` if it is empty; `resource_exhausted` above all when more memory would be
/// locked than the process may (RLIMIT_MEMLOCK: the message tells); `driver` (EFAULT) if it is not
/// mapped, or not writable although local write is asked for
template <access_flags Rights = access::local_read, class Memory>
  requires RegistrableRights<Rights> && RegistrableMemory<Memory> && WritableAsFarAs<Memory, Rights>
[[nodiscard]] result<memory_region<Rights>> register_memory(const protection_domain& domain,
                                                            Memory&& memory) noexcept {
  using object = std::ranges::range_value_t<Memory>;
  VERBSPP_TRY(registration, detail::memory_registration::create(
                                domain, const_cast<object*>(std::ranges::data(memory)),
                                std::ranges::size(memory) * sizeof(object), Rights));
  return memory_region<Rights>(std::move(registration));
}

}  // namespace verbspp
