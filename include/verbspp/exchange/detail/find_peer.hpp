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

/// Connects to the peer, and takes its connections, until one is agreed on; the others are refused.
/// It waits for nothing itself, and stays where it is.
class peer_search {
 public:
  /// What the listener and the options refer to has to live as long as this.
  /// \errors `invalid_input` for what is no host, port or open listener; `resource_exhausted`
  [[nodiscard]] static result<owned<peer_search>> create(const tcp_listener& listener,
                                                         std::string_view host,
                                                         std::string_view port,
                                                         const exchange_setup& setup,
                                                         const wait_limit& limit) noexcept;
  peer_search(const peer_search&) = delete;
  peer_search& operator=(const peer_search&) = delete;
  virtual ~peer_search() = default;

  /// What the peer shall get, as `exchange_core` has it.
  [[nodiscard]] virtual std::span<std::byte> values() noexcept = 0;
  virtual void set_mine(const endpoint& local, std::size_t size_of_values) noexcept = 0;

  /// Does what can be done without waiting.
  /// \returns whether a connection is agreed on, and both have offered
  /// \errors as `meet`, as far as the handshake of the queue pairs
  [[nodiscard]] virtual result<bool> advance() noexcept = 0;
  /// The exchange on that connection, whose socket stays here for now.
  [[nodiscard]] virtual owned<exchange_core> take_exchange() noexcept = 0;
  [[nodiscard]] virtual tcp_socket take_socket() noexcept = 0;

  /// Readable when there is something to do, the passing of a limit included.
  [[nodiscard]] virtual int file_descriptor() const noexcept = 0;
  /// Once the exchange was taken: what the file descriptor is for from now on.
  virtual void watch(short events, wait_limit::time_point deadline) noexcept = 0;
  [[nodiscard]] virtual result<void> wait() noexcept = 0;

 protected:
  peer_search() noexcept = default;
};

}  // namespace verbspp::detail
