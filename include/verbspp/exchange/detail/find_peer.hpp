// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/exchange/detail/exchange_core.hpp>
#include <verbspp/exchange/tcp.hpp>
#include <verbspp/qp/endpoint.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace verbspp::detail {

/// Connects to the peer, and accepts connections at the listener, until both ends agree on one
/// connection; the others are refused. Only `wait` blocks. The object cannot be moved.
class peer_search {
 public:
  /// The listener, and the text and bytes that the options refer to, must stay valid as long as
  /// this exists.
  /// \errors `invalid_input` if the host or port is not valid, or the listener is not open;
  /// `resource_exhausted`
  [[nodiscard]] static result<owned<peer_search>> create(const tcp_listener& listener,
                                                         std::string_view host,
                                                         std::string_view port,
                                                         const exchange_setup& setup,
                                                         const wait_limit& limit) noexcept;
  peer_search(const peer_search&) = delete;
  peer_search& operator=(const peer_search&) = delete;
  virtual ~peer_search() = default;

  /// The buffer for the values that this side sends, to be filled before `advance`. `set_mine` sets
  /// their size.
  [[nodiscard]] virtual std::span<std::byte> values() noexcept = 0;
  virtual void set_mine(const endpoint& local, std::size_t size_of_values) noexcept = 0;

  /// Proceeds as far as possible without waiting.
  /// \returns true when both ends have agreed on a connection, and have sent their offers
  /// \errors as `meet`, except for those of the queue pair's handshake
  [[nodiscard]] virtual result<bool> advance() noexcept = 0;
  /// Returns the exchange on that connection. Its socket stays in this object until `take_socket`.
  [[nodiscard]] virtual owned<exchange_core> take_exchange() noexcept = 0;
  [[nodiscard]] virtual tcp_socket take_socket() noexcept = 0;

  /// The descriptor, readable when `advance` has work to do, including when the limit expires.
  [[nodiscard]] virtual int file_descriptor() const noexcept = 0;
  /// After `take_exchange`: selects the socket events and the time that make `file_descriptor`
  /// readable.
  virtual void watch(short events, wait_limit::time_point deadline) noexcept = 0;
  [[nodiscard]] virtual result<void> wait() noexcept = 0;

 protected:
  peer_search() noexcept = default;
};

}  // namespace verbspp::detail
