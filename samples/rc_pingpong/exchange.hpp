// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/tcp.hpp"
#include "options.hpp"
#include <verbspp/verbspp.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <utility>

namespace rc_pingpong {

/// The out-of-band communication of the two ends: endpoints at the beginning, a goodbye at the end.
/// In between, the open TCP connection shows that the peer is alive.
///
/// ibv_rc_pingpong only exchanges endpoints, as text, and a "done", and closes the connection. With
/// its format, `check_peer` and `finish` do nothing.
class exchange {
 public:
  exchange(tcp::connection peer, const options& given) noexcept
      : peer_(std::move(peer)), given_(given) {}

  /// Sends this end's endpoint, receives the peer's, and connects to it. When it returns, the peer
  /// is either connected as well, or will be before it sends.
  [[nodiscard]] verbspp::result<verbspp::connected_queue_pair<verbspp::transport::rc>> connect(
      verbspp::prepared_queue_pair<verbspp::transport::rc> prepared);

  /// Fails if the peer has exited without a goodbye.
  [[nodiscard]] verbspp::result<void> check_peer();
  /// Notifies the peer that this end has finished, and waits for the same message from the peer. If
  /// a queue pair were destroyed earlier, the acknowledgement of the peer's last message might be
  /// lost.
  [[nodiscard]] verbspp::result<void> finish();

 private:
  [[nodiscard]] verbspp::result<void> receive(std::span<std::byte> bytes,
                                              std::chrono::nanoseconds limit) const;
  [[nodiscard]] verbspp::result<void> send_endpoint(const verbspp::endpoint& local) const;
  [[nodiscard]] verbspp::result<verbspp::endpoint> receive_endpoint(
      const verbspp::endpoint& local) const;
  [[nodiscard]] verbspp::result<void> meet() const;
  [[nodiscard]] verbspp::result<void> expect(std::byte sign, std::chrono::nanoseconds limit) const;

  tcp::connection peer_;  // with --ibv-exchange, it is closed after the exchange
  const options& given_;
  bool peer_is_done_ = false;
};

}  // namespace rc_pingpong
