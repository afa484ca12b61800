// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.hpp"
#include "rsockets/rdma_socket.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace softverbs {

/// One end of a connection, or a listener. The end that connects creates a pair of Unix sockets,
/// and passes one of them to the listener's process.
class stream_socket final : public rdma_socket {
 public:
  stream_socket(int descriptor, sa_family_t family) noexcept;

  int listen(int backlog) override;
  int set_option(int level, int name, const void* value, socklen_t length) override;
  int get_option(int level, int name, void* value, socklen_t* length) override;
  int shut_down(int how) override;
  void close() override;
  std::optional<ip_address> peer() const override;

  int connect(const sockaddr* address) override;
  int accept() override;
  ssize_t send(const msghdr& message, int flags) override;
  ssize_t receive(msghdr& message, int flags) override;
  std::optional<short> readiness(short events) override;
  std::shared_ptr<io_mappings> mappings() override;

 private:
  enum class stage : std::uint8_t { idle, listening, connecting, failed, connected };
  struct introduction;

  int begin_to_connect(const sockaddr* address);
  /// If the socket is connecting, tries again, and sets `stage_` if the attempt succeeds or fails
  /// for good.
  void try_to_connect();
  int attempt();
  int introduce(int to);
  /// Makes this socket's descriptor refer to the open file of `file`, and closes `file`. Returns 0
  /// or an errno value.
  int become(int file) noexcept;
  void apply_sizes(int stream) const noexcept;
  /// Returns 0 if the socket is connected, or the errno value for a call that needs a connection.
  /// Must be called without the lock.
  int await_connection();
  int take_error() noexcept;
  int take_caller();
  int welcome(int caller);
  void share_memory(int with, std::optional<unsigned> peer_room);

  std::atomic<stage> stage_{stage::idle};
  ip_address remote_;
  socket_way way_{};
  nanoseconds gives_up_ = 0;
  nanoseconds is_refused_at_ = 0;
  int error_ = 0;
  std::shared_ptr<io_mappings> mappings_;
};

}  // namespace softverbs
