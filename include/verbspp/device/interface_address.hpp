// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/gid.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace verbspp {

/// An address of one of this host's network interfaces, in the process's network namespace.
struct interface_address {
  /// The value of `vlan` for an interface without a VLAN. No VLAN has the number 0.
  static constexpr std::uint16_t untagged = 0;

  gid address;  ///< IPv4 addresses have RoCE's form ::ffff:a.b.c.d
  /// The number of leading bits that all addresses of the subnet share: 0 to 128. For IPv4, this is
  /// the usual prefix length plus 96.
  std::uint8_t prefix_length = 128;
  std::uint32_t interface_index = 0;  ///< as returned by `if_nametoindex`
  std::uint16_t vlan = untagged;      ///< 1 to 4094, or `untagged`
  bool is_up = true;
  bool is_loopback = false;

  /// True if `other` is in the same subnet as this address.
  [[nodiscard]] bool shares_subnet_with(const gid& other) const noexcept;
};

/// True if the first `bits` bits of the two addresses are equal.
[[nodiscard]] bool share_prefix(const gid& left, const gid& right, unsigned bits) noexcept;

/// The addresses of this host's network interfaces at the time of the query.
class interface_table {
 public:
  /// Queries the kernel (`getifaddrs`, and `SIOCGIFVLAN` for the VLANs). Thread-safe.
  /// \errors `resource_exhausted`; otherwise the errno of `getifaddrs`
  [[nodiscard]] static result<interface_table> query() noexcept;

  interface_table(interface_table&& other) noexcept
      : entries_(std::move(other.entries_)), size_(std::exchange(other.size_, 0)) {}
  interface_table& operator=(interface_table&& other) noexcept {
    interface_table taken(std::move(other));
    std::swap(entries_, taken.entries_);
    std::swap(size_, taken.size_);
    return *this;
  }

  [[nodiscard]] const interface_address* begin() const& noexcept VERBSPP_LIFETIMEBOUND {
    return entries_.get();
  }
  void begin() const&& = delete;  // a temporary frees its entries: store the table in a variable
  [[nodiscard]] const interface_address* end() const& noexcept VERBSPP_LIFETIMEBOUND {
    return entries_.get() + size_;
  }
  void end() const&& = delete;  // a temporary frees its entries: store the table in a variable
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

 private:
  interface_table(detail::owned<interface_address[]> entries, std::size_t size) noexcept
      : entries_(std::move(entries)), size_(size) {}

  detail::owned<interface_address[]> entries_;
  std::size_t size_;
};

}  // namespace verbspp
