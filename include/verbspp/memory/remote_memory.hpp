// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/detail/dependent.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/memory/access.hpp>
#include <verbspp/memory/keys.hpp>

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>

namespace verbspp {

namespace detail {

/// The contents of an encoded remote memory handle, including the rights.
struct remote_memory_description {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  remote_key rkey{std::uint32_t{0}};
  access_flags rights{};

  [[nodiscard]] static result<remote_memory_description> decode(std::span<const std::byte> bytes,
                                                                access_flags needed) noexcept;
};

inline constexpr std::size_t remote_memory_encoded_size = 24;

[[nodiscard]] std::array<std::byte, remote_memory_encoded_size> encode(
    const remote_memory_description& memory) noexcept;
void print(std::ostream& out, const remote_memory_description& memory);

}  // namespace detail

/// A peer's memory that this side may access. The rights that the peer granted are part of the
/// type.
///
/// This is a plain value that consists of an address, a length and an rkey, and that can be copied
/// freely. It does not keep the peer's registration alive. If the peer has deregistered the memory,
/// a request that uses the handle fails with a remote access error on RC; on UC, its data is lost
/// without an error.
template <access_flags Rights>
class remote_memory {
  static_assert(access::any_remote.contains(Rights),
                "remote memory can have only remote rights: leave out access::local_write and "
                "other local rights");

 public:
  static constexpr access_flags rights = Rights;
  static constexpr std::size_t encoded_size = detail::remote_memory_encoded_size;

  /// Constructs a handle from values that were received by other means. The caller vouches that the
  /// peer has granted these rights.
  constexpr remote_memory(std::uint64_t address, std::uint64_t length, remote_key rkey) noexcept
      : address_(address), length_(length), rkey_(rkey) {}
  /// Converts from a handle with more rights.
  template <access_flags More>
    requires GrantsAllOf<More, Rights> && (More != Rights)
  constexpr remote_memory(const remote_memory<More>& other) noexcept
      : address_(other.address()), length_(other.length()), rkey_(other.rkey()) {}

  /// The address by which the peer's device refers to the first byte.
  [[nodiscard]] constexpr std::uint64_t address() const noexcept { return address_; }
  /// The length in bytes.
  [[nodiscard]] constexpr std::uint64_t length() const noexcept { return length_; }
  [[nodiscard]] constexpr remote_key rkey() const noexcept { return rkey_; }

  /// Returns a handle to the `length` bytes at `offset`.
  /// \errors `invalid_input` if the bytes are not within this memory
  [[nodiscard]] constexpr result<remote_memory> slice(std::uint64_t offset,
                                                      std::uint64_t length) const noexcept {
    if (offset > length_ || length > length_ - offset) [[unlikely]]
      return outside(offset, length, length_);
    return slice_unchecked(offset, length);
  }
  /// Like `slice`, but returns the handle itself instead of a `result`, for hot paths. The bounds
  /// are checked only by an assertion in debug builds.
  [[nodiscard]] constexpr remote_memory slice_unchecked(std::uint64_t offset,
                                                        std::uint64_t length) const noexcept {
    assert(offset <= length_ && length <= length_ - offset);
    return remote_memory(address_ + offset, length, rkey_);
  }

  /// Encodes the handle as 24 bytes, for `decode` on any machine. They consist of 0x6d, the
  /// format version 1, the rights (16 bits), the rkey (32), the address (64) and the length (64),
  /// all big-endian. The rights have the values of `ibv_access_flags`.
  [[nodiscard]] std::array<std::byte, encoded_size> encode() const noexcept {
    return detail::encode({address_, length_, rkey_, Rights});
  }
  /// Decodes a handle.
  /// \errors `invalid_input` if the bytes are not an encoded handle; `mismatch` for a different
  /// format version; `permission` if the handle lacks one of this type's rights
  [[nodiscard]] static result<remote_memory> decode(std::span<const std::byte> bytes) noexcept {
    using description = detail::dependent<detail::remote_memory_description, Rights>;
    VERBSPP_TRY(memory, description::decode(bytes, Rights));
    return remote_memory(memory.address, memory.length, memory.rkey);
  }

  friend constexpr bool operator==(const remote_memory&, const remote_memory&) noexcept = default;
  friend std::ostream& operator<<(std::ostream& out, const remote_memory& memory) {
    detail::print(out, {memory.address_, memory.length_, memory.rkey_, Rights});
    return out;
  }

 private:
  // Not inlined, because g++ 12 would build parts of the error before it is needed.
  [[nodiscard, gnu::cold, gnu::noinline]] static constexpr error outside(
      std::uint64_t offset, std::uint64_t length, std::uint64_t whole) noexcept {
    if (offset > whole)
      return error::above_limit("remote_memory::slice", "offset in bytes", offset, whole);
    return error::above_limit("remote_memory::slice", "number of bytes from the given offset",
                              length, whole - offset);
  }

  std::uint64_t address_;
  std::uint64_t length_;
  remote_key rkey_;
};

/// The destination of an RDMA write: any remote memory that grants remote write.
class remote_destination {
 public:
  template <access_flags Rights>
    requires RemotelyWritable<Rights>
  constexpr remote_destination(const remote_memory<Rights>& memory) noexcept : memory_(memory) {}
  template <access_flags Rights>
  remote_destination(const remote_memory<Rights>&) VERBSPP_DETAIL_REFUSED(
      !RemotelyWritable<Rights>,
      "this handle to remote memory lacks access::remote_write: a write needs a handle with that "
      "right, which the owner of the memory has to grant");
  template <class Other>
  remote_destination(const Other&)
      VERBSPP_DETAIL_REFUSED(detail::MayLackValue<Other>,
                             "this is a result or an optional, which may hold no value: get the "
                             "value with .value() or, from a result, with VERBSPP_TRY");
  VERBSPP_DETAIL_NO_DEFAULT(remote_destination,
                            "an RDMA write needs a destination: set .remote to memory of the peer, "
                            "from the peer's region.remote() or from remote_memory::decode");
  [[nodiscard]] constexpr const remote_memory<access::remote_write>& memory() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    return memory_;
  }
  [[nodiscard]] constexpr remote_memory<access::remote_write> memory() && noexcept {
    return memory_;
  }

 private:
  remote_memory<access::remote_write> memory_;
};

/// The source of an RDMA read: any remote memory that grants remote read.
class remote_source {
 public:
  template <access_flags Rights>
    requires RemotelyReadable<Rights>
  constexpr remote_source(const remote_memory<Rights>& memory) noexcept : memory_(memory) {}
  template <access_flags Rights>
  remote_source(const remote_memory<Rights>&) VERBSPP_DETAIL_REFUSED(
      !RemotelyReadable<Rights>,
      "this handle to remote memory lacks access::remote_read: a read needs a handle with that "
      "right, which the owner of the memory has to grant");
  template <class Other>
  remote_source(const Other&)
      VERBSPP_DETAIL_REFUSED(detail::MayLackValue<Other>,
                             "this is a result or an optional, which may hold no value: get the "
                             "value with .value() or, from a result, with VERBSPP_TRY");
  VERBSPP_DETAIL_NO_DEFAULT(remote_source,
                            "an RDMA read needs a source: set .remote to memory of the peer, from "
                            "the peer's region.remote() or from remote_memory::decode");
  [[nodiscard]] constexpr const remote_memory<access::remote_read>& memory() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    return memory_;
  }
  [[nodiscard]] constexpr remote_memory<access::remote_read> memory() && noexcept {
    return memory_;
  }

 private:
  remote_memory<access::remote_read> memory_;
};

template <access_flags Rights>
concept RemotelyFlushable = detail::because(
    Rights.intersects(access::flush_global | access::flush_persistent),
    "this handle to remote memory lacks access::flush_global and access::flush_persistent: a flush "
    "needs a handle with one of these rights, which the owner of the memory has to grant");

/// The memory that an RDMA flush covers: any remote memory that grants `flush_global`,
/// `flush_persistent` or both.
class remote_flushable {
 public:
  template <access_flags Rights>
    requires RemotelyFlushable<Rights>
  constexpr remote_flushable(const remote_memory<Rights>& memory) noexcept
      : address_(memory.address()),
        length_(memory.length()),
        rkey_(memory.rkey()),
        rights_(Rights) {}
  template <class Other>
  remote_flushable(const Other&)
      VERBSPP_DETAIL_REFUSED(detail::MayLackValue<Other>,
                             "this is a result or an optional, which may hold no value: get the "
                             "value with .value() or, from a result, with VERBSPP_TRY");
  VERBSPP_DETAIL_NO_DEFAULT(remote_flushable,
                            "a flush needs the memory to flush: set .remote to memory of the peer, "
                            "from the peer's region.remote() or from remote_memory::decode");

  [[nodiscard]] constexpr std::uint64_t address() const noexcept { return address_; }
  /// The length in bytes.
  [[nodiscard]] constexpr std::uint64_t length() const noexcept { return length_; }
  [[nodiscard]] constexpr remote_key rkey() const noexcept { return rkey_; }
  /// The rights of the handle.
  [[nodiscard]] constexpr access_flags rights() const noexcept { return rights_; }

 private:
  std::uint64_t address_;
  std::uint64_t length_;
  remote_key rkey_;
  access_flags rights_;
};

}  // namespace verbspp
