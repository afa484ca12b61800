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

/// Connects to the peer, and accepts connections through the listener, until both ends agree on one
/// of the connections. The other connections are refused. Only `wait` blocks. The object cannot be
/// moved.
class peer_search {
 public:
  /// Creates a search. The listener, and the text and bytes that the options refer to, must stay
  /// valid as long as the search exists.
  /// \errors as `meeting_session::start`
  [[nodiscard]] static result<owned<peer_search>> create(const tcp_listener& listener,
                                                         std::string_view host,
                                                         std::string_view port,
                                                         const exchange_setup& setup,
                                                         const wait_limit& limit) noexcept;
  peer_search(const peer_search&) = delete;
  peer_search& operator=(const peer_search&) = delete;
  virtual ~peer_search() = default;

  /// Returns the buffer for the values that this side sends. The caller fills it before it calls
  /// `poll`, and passes the size of the values to `set_mine`.
  [[nodiscard]] virtual std::span<std::byte> values() noexcept = 0;
  virtual void set_mine(const endpoint& local, std::size_t size_of_values) noexcept = 0;

  /// Proceeds as far as possible without waiting.
  /// \returns true when both ends have agreed on a connection, and have sent their offers
  /// \errors as `meet`, except for those of the queue pair's handshake
  [[nodiscard]] virtual result<bool> poll() noexcept = 0;
  /// Returns the exchange on the chosen connection, once `poll` has returned true. This object
  /// continues to own the socket until `take_socket` is called.
  [[nodiscard]] virtual owned<exchange_core> take_exchange() noexcept = 0;
  [[nodiscard]] virtual tcp_socket take_socket() noexcept = 0;

  /// The descriptor, which is readable when `poll` has work to do, for instance because the
  /// limit was reached.
  [[nodiscard]] virtual int file_descriptor() const noexcept = 0;
  /// Selects the socket events that make `file_descriptor` readable after `take_exchange` has been
  /// called. The limit makes it readable, too.
  virtual void watch(short events) noexcept = 0;
  [[nodiscard]] virtual result<void> wait() noexcept = 0;

 protected:
  peer_search() noexcept = default;
};

}  // namespace verbspp::detail
