// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/detail/owned.hpp>
#include <verbspp/base/result.hpp>
#include <verbspp/base/wait_limit.hpp>
#include <verbspp/exchange/detail/exchange_core.hpp>
#include <verbspp/exchange/tcp.hpp>

#include <string_view>

namespace verbspp::detail {

/// The connection that two equals use, and its exchange, in which both have offered.
struct found_peer {
  tcp_socket socket;
  owned<exchange_core> core;
};

/// Writes what the peer shall get.
class peer_offer {
 public:
  virtual void operator()(exchange_core& core) const noexcept = 0;

 protected:
  ~peer_offer() = default;
};

/// Connects to the peer, and takes its connections, until one is agreed on; the others are refused.
/// \errors as `meet`, as far as the handshake of the queue pairs
[[nodiscard]] result<found_peer> find_peer(const tcp_listener& listener, std::string_view host,
                                           std::string_view port, const exchange_setup& setup,
                                           const peer_offer& offer,
                                           const wait_limit& limit) noexcept;

}  // namespace verbspp::detail
