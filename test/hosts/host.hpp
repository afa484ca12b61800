// SPDX-License-Identifier: Apache-2.0
/// \file
/// Hosts by what the kernel says of them: the addresses of their interfaces, and the GID table of
/// their RoCE port.
#pragma once

#include <verbspp/device/gid.hpp>
#include <verbspp/device/interface_address.hpp>
#include <verbspp/qp/address_offer.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace verbspp::test {

/// From its usual form, of IPv4 too.
[[nodiscard]] gid address_of(const std::string& text);

/// A host with one RoCE port: the addresses of its interfaces, and the GID table that the kernel
/// makes of them, in which every address stands twice, as v1 and as v2.
class host {
 public:
  /// "192.0.2.1/24", on an interface of that index.
  host& has(std::uint32_t interface, const std::string& address, std::uint16_t vlan = 0);
  host& on_interface(std::uint32_t interface, const std::string& address, std::uint16_t vlan = 0);
  /// Without an interface that has it: what follows a slash does not count.
  host& in_table(std::uint32_t interface, const std::string& address);
  host& down(std::uint32_t interface);
  host& loopback(std::uint32_t interface);
  /// An empty place, as addresses leave them that were taken away.
  host& gap();
  enum class only : std::uint8_t { none, v1, v2 };
  /// Of what is added from now on.
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

/// What both ends have to see: the addresses at which they meet, or why they don't.
struct meeting {
  std::string left{};
  std::string right{};
  gid_type type = gid_type::roce_v2;
  address_reach reach = address_reach::same_subnet;
  bool is_doubtful = false;
  std::string refusal{};  ///< words of the reason, if they don't
};

struct host_pair {
  std::string name;
  host left;
  host right;
  meeting wanted;
};

/// GID tables as real hosts have them, two by two, with the right answer.
[[nodiscard]] const std::vector<host_pair>& host_pairs();

}  // namespace verbspp::test
