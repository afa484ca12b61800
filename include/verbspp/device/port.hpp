// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/bounded.hpp>
#include <verbspp/base/detail/number_of.hpp>
#include <verbspp/device/gid.hpp>

#include <infiniband/verbs.h>

#include <cstdint>
#include <iosfwd>

namespace verbspp {

namespace detail {
struct port_number_traits {
  using value_type = std::uint8_t;
  static constexpr value_type minimum = 1, maximum = 255;
  static constexpr const char* name = "port number (1..255)";
};
struct gid_index_traits {
  using value_type = std::uint8_t;
  static constexpr value_type minimum = 0, maximum = 255;
  static constexpr const char* name = "GID index (0..255)";
};
struct pkey_index_traits {
  using value_type = std::uint16_t;
  static constexpr value_type minimum = 0, maximum = 65535;
  static constexpr const char* name = "pkey index (0..65535)";
};
struct lid_traits {
  using value_type = std::uint16_t;
  static constexpr value_type minimum = 0, maximum = 65535;
  static constexpr const char* name = "LID (0..65535)";
};
}  // namespace detail

/// The number of a physical port of a device, starting at 1.
using port_number = bounded<detail::port_number_traits>;
/// An index into a port's GID table; 8 bits, as in an address vector.
using gid_index = bounded<detail::gid_index_traits>;
/// An index into a port's partition key table.
using pkey_index = bounded<detail::pkey_index_traits>;
/// A local identifier, which is a port's address within an InfiniBand subnet. 0 means that the port
/// has none.
using lid = bounded<detail::lid_traits>;

/// The maximum payload of a packet in bytes: 256, 512, 1024, 2048 or 4096.
class path_mtu {
 public:
  /// 256 bytes, which every port supports.
  constexpr path_mtu() noexcept = default;
  template <detail::Number Integer>
  consteval path_mtu(const Integer& bytes) noexcept
      : code_(code_of(static_cast<std::uint64_t>(VERBSPP_DETAIL_LITERAL(bytes)))) {
    if (code_ == 0) detail::value_is_out_of_range();
  }
  VERBSPP_DETAIL_NUMBERS_ONLY(path_mtu);

  /// \errors `invalid_input` if `bytes` is not one of the five sizes
  template <detail::Number Integer>
  [[nodiscard]] static constexpr result<path_mtu> from(Integer bytes) noexcept {
    const std::uint8_t code =
        std::cmp_less(bytes, 0) ? std::uint8_t{0} : code_of(static_cast<std::uint64_t>(bytes));
    if (code == 0)
      return error::out_of_range("parameter", "path MTU (256, 512, 1024, 2048 or 4096 bytes)",
                                 bytes);
    return path_mtu(code, unchecked{});
  }
  /// Converts the code that libibverbs uses for a size.
  /// \errors `invalid_input` if `code` is not 1..5
  [[nodiscard]] static constexpr result<path_mtu> from_code(unsigned code) noexcept {
    if (code < IBV_MTU_256 || code > IBV_MTU_4096)
      return error::out_of_range("parameter", "path MTU code (1..5)", code);
    return path_mtu(static_cast<std::uint8_t>(code), unchecked{});
  }

  [[nodiscard]] constexpr std::uint32_t bytes() const noexcept { return 128U << code_; }
  [[nodiscard]] constexpr ibv_mtu native() const noexcept { return static_cast<ibv_mtu>(code_); }
  friend constexpr auto operator<=>(path_mtu, path_mtu) noexcept = default;

 private:
  struct unchecked {};
  constexpr path_mtu(std::uint8_t code, unchecked) noexcept : code_(code) {}
  static constexpr std::uint8_t code_of(std::uint64_t bytes) noexcept {
    for (std::uint8_t code = IBV_MTU_256; code <= IBV_MTU_4096; ++code)
      if (bytes == 128U << code) return code;
    return 0;
  }

  std::uint8_t code_ = IBV_MTU_256;
};

namespace detail {
/// Converts a code that a driver wrote. For an unknown code, returns the smallest MTU.
[[nodiscard]] path_mtu mtu_from(const ibv_mtu& code) noexcept;
}  // namespace detail

/// The states of a port, with the values of `ibv_port_state`.
enum class port_state : std::uint8_t {
  no_change = IBV_PORT_NOP,
  down = IBV_PORT_DOWN,
  initializing = IBV_PORT_INIT,  ///< the link is up; a subnet manager has to configure the port
  armed = IBV_PORT_ARMED,
  active = IBV_PORT_ACTIVE,
  active_deferred = IBV_PORT_ACTIVE_DEFER,
};

[[nodiscard]] const char* to_string(port_state state) noexcept;

/// The link layers, with the values of `IBV_LINK_LAYER_*`.
enum class link_layer : std::uint8_t {
  infiniband = IBV_LINK_LAYER_INFINIBAND,
  ethernet = IBV_LINK_LAYER_ETHERNET,  ///< RoCE, iWARP
};

[[nodiscard]] const char* to_string(link_layer layer) noexcept;

/// The attributes that a port reported when it was queried.
class port_attributes {
 public:
  port_attributes(port_number number, const ibv_port_attr& native) noexcept
      : native_(native), number_(number) {}

  [[nodiscard]] port_number number() const noexcept { return number_; }
  [[nodiscard]] port_state state() const noexcept {
    return static_cast<port_state>(detail::number_of(native_.state));
  }
  [[nodiscard]] bool is_active() const noexcept { return state() == port_state::active; }
  /// The link layer. Old providers leave it unspecified, which means InfiniBand.
  [[nodiscard]] enum link_layer link_layer() const noexcept {
    return native_.link_layer == IBV_LINK_LAYER_ETHERNET ? link_layer::ethernet
                                                         : link_layer::infiniband;
  }
  [[nodiscard]] path_mtu active_mtu() const noexcept;
  [[nodiscard]] path_mtu max_mtu() const noexcept;
  /// The LID; on InfiniBand, 0 until the subnet manager has assigned one. It has no meaning on
  /// Ethernet.
  [[nodiscard]] verbspp::lid lid() const noexcept { return verbspp::lid::assume(native_.lid); }
  [[nodiscard]] std::uint32_t gid_table_length() const noexcept {
    return static_cast<std::uint32_t>(native_.gid_tbl_len);
  }
  [[nodiscard]] std::uint32_t pkey_table_length() const noexcept { return native_.pkey_tbl_len; }
  /// All attributes that `ibv_query_port` reports.
  [[nodiscard]] const ibv_port_attr& native() const noexcept { return native_; }

 private:
  ibv_port_attr native_;
  port_number number_;
};

std::ostream& operator<<(std::ostream& out, const port_attributes& port);

/// One entry of a port's GID table.
struct gid_entry {
  gid address;
  gid_type type = gid_type::infiniband;
  gid_index index;
  port_number port;
  /// The network interface that the GID belongs to, as returned by `if_nametoindex`; 0 if unknown.
  std::uint32_t interface_index = 0;
};

std::ostream& operator<<(std::ostream& out, const gid_entry& entry);

}  // namespace verbspp
