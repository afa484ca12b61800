// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/config.hpp>
#include <verbspp/base/detail/because.hpp>
#include <verbspp/base/ownership.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/device/path.hpp>
#include <verbspp/device/port.hpp>
#include <verbspp/device/queue_pair_number.hpp>
#include <verbspp/memory/protection_domain.hpp>

#include <infiniband/verbs.h>

#include <cassert>
#include <cstdint>
#include <iosfwd>
#include <utility>

namespace verbspp {

class received_datagram;

/// The destination of a datagram: the path, the queue pair, and the key that the queue pair
/// accepts.
///
/// A plain value, usually created by `address_handle::destination`. It owns nothing, so the address
/// handle must live until the sends that use it have completed.
class datagram_destination {
 public:
  VERBSPP_DETAIL_NO_DEFAULT(datagram_destination,
                            "a UD queue pair has no single peer to send to: specify the "
                            "destination with .to = address_handle.destination(number, qkey)");
  static constexpr std::uint32_t unknown_size = 0xffff'ffff;
  /// Creates a destination from a native address handle.
  /// \param most_bytes the maximum length of a datagram on this path
  datagram_destination(ibv_ah* handle, queue_pair_number number, queue_key key,
                       std::uint32_t most_bytes = unknown_size) noexcept
      : handle_(handle), number_(number), key_(key), most_bytes_(most_bytes) {}

  [[nodiscard]] ibv_ah* handle() const noexcept { return handle_; }
  [[nodiscard]] queue_pair_number number() const noexcept { return number_; }
  [[nodiscard]] queue_key key() const noexcept { return key_; }
  /// The maximum length of a datagram, or `unknown_size` if it is not known. Posting a longer
  /// datagram fails.
  [[nodiscard]] std::uint32_t most_bytes() const noexcept { return most_bytes_; }

 private:
  ibv_ah* handle_;
  queue_pair_number number_;
  queue_key key_;
  std::uint32_t most_bytes_;
};

/// The path to a port or a multicast group, for UD queue pairs of one protection domain.
///
/// A move-only owner, which keeps its protection domain alive. Destroy an address handle only after
/// the sends that use it have completed. Thread rule: several threads may call its const functions
/// at the same time.
class VERBSPP_CONSUMABLE address_handle {
 public:
  /// Resolves the path (`ibv_create_ah`). On Ethernet, this determines the peer's MAC address, and
  /// may take as long as an ARP request.
  /// \errors `invalid_input` for a port or GID index that the device does not have, or a path
  /// without an address; `mismatch` for a path whose link layer differs from the port's;
  /// `timed_out` or `driver` if the address cannot be resolved; `driver` if the GID table's entry
  /// is empty; `resource_exhausted`
  [[nodiscard]] static result<address_handle> create(const class protection_domain& domain,
                                                     port_number port, const path& way) noexcept;
  /// Creates an address handle for the sender of a datagram that arrived at this port.
  /// \errors those of `create`, and on Ethernet `invalid_input` if the memory of the datagram does
  /// not contain the global route header; `invalid_input` or `driver` if the destination GID in the
  /// header is not one of this port's, for instance that of a multicast group
  [[nodiscard]] static result<address_handle> create_reply(
      const class protection_domain& domain, port_number port,
      const received_datagram& datagram) noexcept;

  /// Takes ownership of an address handle in this protection domain, or borrows it.
  /// \errors `invalid_input` for null, or an address handle in a different protection domain
  [[nodiscard]] static result<address_handle> from_native(const class protection_domain& domain,
                                                          ibv_ah* native, ownership whose) noexcept;
  /// Returns the native address handle, and ends its use by the library. Unless it was borrowed,
  /// the caller must destroy it before the protection domain. Returns null if this address handle
  /// was moved from.
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED VERBSPP_CONSUMES ibv_ah* release() && noexcept {
    return std::exchange(native_, nullptr);
  }

  address_handle(address_handle&& other) noexcept
      : native_(std::exchange(other.native_, nullptr)),
        domain_(std::move(other.domain_)),
        whose_(other.whose_),
        most_bytes_(other.most_bytes_) {}
  address_handle& operator=(address_handle&& other) noexcept {
    address_handle taken(std::move(other));
    std::swap(native_, taken.native_);
    std::swap(domain_, taken.domain_);
    std::swap(whose_, taken.whose_);
    std::swap(most_bytes_, taken.most_bytes_);
    return *this;
  }
  address_handle(const address_handle&) = delete;
  address_handle& operator=(const address_handle&) = delete;
  ~address_handle();

  /// Limits the length of datagrams to destinations that are created from now on, so that posting a
  /// longer datagram fails. `largest` should be the smaller of the active MTUs of the ports at both
  /// ends. `queue_pair::address_of` sets this limit from the endpoints. Without a limit, a datagram
  /// that is too long may be lost without notice to its sender.
  VERBSPP_CALLABLE_UNCONSUMED void limit_datagrams(path_mtu largest) noexcept {
    most_bytes_ = largest.bytes();
  }

  /// Returns the destination that consists of this address and the queue pair with this number.
  /// \pre this address handle was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED datagram_destination
  destination(queue_pair_number number, queue_key key) const& noexcept VERBSPP_LIFETIMEBOUND {
    assert(native_ != nullptr);
    return {native_, number, key, most_bytes_};
  }
  void destination(queue_pair_number, queue_key) const&& = delete;  // use a named address handle
  /// Returns the destination that consists of the multicast group at this address.
  /// \pre this address handle was not moved from
  [[nodiscard]] VERBSPP_CALLABLE_UNCONSUMED datagram_destination
  destination_group(queue_key key) const& noexcept VERBSPP_LIFETIMEBOUND {
    assert(native_ != nullptr);
    return {native_, multicast_queue_pair_number, key, most_bytes_};
  }
  void destination_group(queue_key) const&& = delete;  // use a named address handle

  [[nodiscard]] const class protection_domain& protection_domain() const& noexcept
      VERBSPP_LIFETIMEBOUND {
    return domain_;
  }
  [[nodiscard]] class protection_domain protection_domain() && noexcept { return domain_; }
  /// Null if this address handle was moved from.
  [[nodiscard]] ibv_ah* native_handle() const noexcept { return native_; }

 private:
  address_handle(ibv_ah* native, class protection_domain domain, ownership whose) noexcept
      : native_(native), domain_(std::move(domain)), whose_(whose) {}
  static result<address_handle> create(const class protection_domain& domain, ibv_ah_attr address,
                                       const char* operation) noexcept;

  ibv_ah* native_;
  class protection_domain domain_;
  ownership whose_;
  std::uint32_t most_bytes_ = datagram_destination::unknown_size;
};

std::ostream& operator<<(std::ostream& out, const address_handle& handle);

}  // namespace verbspp
