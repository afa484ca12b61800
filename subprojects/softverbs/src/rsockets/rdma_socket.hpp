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

/// Writes as much of the address as there is room for; returns the length of all of it.
socklen_t copy_address(const ip_address& address, void* to, socklen_t room) noexcept;

/// The way from an address of this process to another one.
struct socket_way {
  place from;
  ip_address source;
  ip_address target;
};

/// The socket of one descriptor: a Unix socket with IP addresses. The kernel implements blocking,
/// polling and shutdown. The functions need the lock of connections, unless they say otherwise.
class rdma_socket {
 public:
  /// The socket that has this descriptor; null with EBADF. Not under the lock.
  static std::shared_ptr<rdma_socket> find(int descriptor);
  /// From here on, `find` finds it.
  static void add(std::shared_ptr<rdma_socket> made);

  rdma_socket(const rdma_socket&) = delete;
  rdma_socket& operator=(const rdma_socket&) = delete;
  virtual ~rdma_socket() = default;

  int descriptor() const noexcept { return descriptor_; }
  /// By the flag of the descriptor.
  bool is_nonblocking() const noexcept;

  // Each is 0 or an errno.
  int bind(const sockaddr* address);
  virtual int listen(int backlog);
  virtual int set_option(int level, int name, const void* value, socklen_t length);
  virtual int get_option(int level, int name, void* value, socklen_t* length);
  virtual int shut_down(int how);
  /// Closes the descriptor and releases the address.
  virtual void close();

  virtual ip_address local() const { return local_; }
  virtual std::optional<ip_address> peer() const = 0;

  // Not under the lock, because they wait.

  /// 0 or an errno.
  virtual int connect(const sockaddr* address) = 0;
  /// A descriptor, or -1 with errno.
  virtual int accept();
  // As sendmsg and recvmsg.
  virtual ssize_t send(const msghdr& message, int flags) = 0;
  virtual ssize_t receive(msghdr& message, int flags) = 0;

  /// The result of a poll that the kernel can't give; 0 if the caller has to ask again soon. Empty
  /// if the kernel's result counts.
  virtual std::optional<short> readiness(short /*events*/) { return std::nullopt; }
  /// Null if it isn't connected, or can't have any.
  virtual std::shared_ptr<io_mappings> mappings() { return nullptr; }

 protected:
  rdma_socket(int descriptor, port_space space, sa_family_t family) noexcept;

  /// Once the address is this socket's own.
  virtual int name_socket() { return 0; }
  int reserve(ip_address address);
  bool is_bound() const noexcept { return reserved_ != nullptr; }
  int find_way(const ip_address& target, socket_way& found) const;
  /// The address with the family of this socket.
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
