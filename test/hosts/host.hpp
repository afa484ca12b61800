// SPDX-License-Identifier: Apache-2.0
/// \file
/// Hosts as the kernel shows them: the addresses of their interfaces, and the GID table of
/// their RoCE port.
#pragma once

#include <verbspp/device/gid.hpp>
#include <verbspp/device/interface_address.hpp>
#include <verbspp/qp/address_offer.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace verbspp::test {

/// Parses an IPv4 or IPv6 address in its usual text form.
[[nodiscard]] gid address_of(const std::string& text);

/// A host with one RoCE port. It consists of the addresses of its interfaces, and of the GID table
/// that the kernel creates from them. The table contains each address once for each RoCE version,
/// unless `version` restricts it.
class host {
 public:
  /// Adds an address such as "192.0.2.1/24" to an interface and to the table.
  host& has(std::uint32_t interface, const std::string& address, std::uint16_t vlan = 0);
  host& on_interface(std::uint32_t interface, const std::string& address, std::uint16_t vlan = 0);
  /// Adds an address to the table, but not to an interface. A prefix length is accepted and
  /// ignored.
  host& in_table(std::uint32_t interface, const std::string& address);
  host& down(std::uint32_t interface);
  host& loopback(std::uint32_t interface);
  /// Leaves the next index of the table unused, as after the removal of an address.
  host& gap();
  enum class only : std::uint8_t { none, v1, v2 };
  /// Addresses that are added after this call get table entries for this RoCE version only. `none`
  /// lifts the restriction.
  host& version(only which);

  [[nodiscard]] address_offer offer(unusable_addresses* unusable = nullptr) const {
    return offer_of(table_, interfaces_, unusable);
  }
  [[nodiscard]] const std::vector<gid_entry>& table() const { return table_; }
  [[nodiscard]] const std::vector<interface_address>& interfaces() const { return interfaces_; }

 private:
  void add(std::uint32_t interface, const std::string& address, gid_type type);

  std::vector<interface_address> interfaces_;
  std::vector<gid_entry> table_;
  std::uint8_t next_ = 0;
  only versions_ = only::none;
};

/// The result that both ends should reach: either the addresses at which they connect, or the
/// reason why they don't.
struct meeting {
  std::string left{};
  std::string right{};
  gid_type type = gid_type::roce_v2;
  address_reach reach = address_reach::same_subnet;
  bool is_doubtful = false;
  std::string refusal{};  ///< a part of the reason why they don't connect; empty if they do
};

struct host_pair {
  std::string name;
  host left;
  host right;
  meeting wanted;
};

/// Returns pairs of hosts whose GID tables resemble those of real hosts, with the expected results.
[[nodiscard]] const std::vector<host_pair>& host_pairs();

}  // namespace verbspp::test
