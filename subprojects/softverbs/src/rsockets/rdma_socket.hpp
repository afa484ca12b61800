// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "connections/place.hpp"
#include "connections/reservation.hpp"
#include "rsockets/socket_options.hpp"

#include <sys/socket.h>
#include <sys/types.h>

#include <memory>
#include <optional>

namespace softverbs {

class io_mappings;

/// Writes as much of the address as fits, and returns its full length.
socklen_t copy_address(const ip_address& address, void* to, socklen_t room) noexcept;

/// The route from an address of this process to another address.
struct socket_way {
  place from;
  ip_address source;
  ip_address target;
};

/// An rsocket, which a program identifies by a descriptor, and whose addresses are IP addresses.
/// The descriptor refers to a Unix socket or, if this is a listener, to an epoll instance. The
/// kernel implements blocking, polling and shutdown, except while the socket connects and after it
/// has failed to connect. The functions require the lock of connections, unless they say otherwise.
class rdma_socket {
 public:
  /// Returns the socket with this descriptor, or null with EBADF. Must be called without the lock.
  static std::shared_ptr<rdma_socket> find(int descriptor);
  /// Adds a socket, so that `find` returns it.
  static void add(std::shared_ptr<rdma_socket> made);

  rdma_socket(const rdma_socket&) = delete;
  rdma_socket& operator=(const rdma_socket&) = delete;
  virtual ~rdma_socket() = default;

  int descriptor() const noexcept { return descriptor_; }
  /// True if the descriptor has the flag O_NONBLOCK. Does not require the lock.
  bool is_nonblocking() const noexcept;

  // The next functions return 0 or an errno value.
  int bind(const sockaddr* address);
  virtual int listen(int backlog);
  virtual int set_option(int level, int name, const void* value, socklen_t length);
  virtual int get_option(int level, int name, void* value, socklen_t* length);
  virtual int shut_down(int how);
  /// Closes the descriptor and releases the address.
  virtual void close();

  virtual ip_address local() const { return local_; }
  virtual std::optional<ip_address> peer() const = 0;

  // The following functions must be called without the lock, because they wait, or take the lock
  // themselves.

  /// Connects the socket. Returns 0 or an errno value.
  virtual int connect(const sockaddr* address) = 0;
  /// Accepts a connection. Returns its descriptor, or -1 with errno on failure.
  virtual int accept();
  // `send` and `receive` have the parameters and results of sendmsg and recvmsg.
  virtual ssize_t send(const msghdr& message, int flags) = 0;
  virtual ssize_t receive(msghdr& message, int flags) = 0;

  /// Returns the result of a poll if the kernel can't determine it, 0 if the caller has to poll
  /// again soon, or nothing if the kernel's result is right.
  virtual std::optional<short> readiness(short /*events*/) { return std::nullopt; }
  /// Returns the mappings, or null if the socket isn't connected, or can't have any.
  virtual std::shared_ptr<io_mappings> mappings() { return nullptr; }

 protected:
  rdma_socket(int descriptor, port_space space, sa_family_t family) noexcept;

  /// Called once the socket's address has been reserved. Returns 0 or an errno value.
  virtual int name_socket() { return 0; }
  int reserve(ip_address address);
  bool is_bound() const noexcept { return reserved_ != nullptr; }
  int find_way(const ip_address& target, socket_way& found) const;
  /// Returns the same IP address in the form of this socket's address family.
  ip_address as_own(ip_address address) const noexcept;

  const int descriptor_;
  const port_space space_;
  const sa_family_t family_;
  socket_options options_;
  ip_address local_;
  std::optional<place> here_;
  std::shared_ptr<reservation> reserved_;
};

}  // namespace softverbs
