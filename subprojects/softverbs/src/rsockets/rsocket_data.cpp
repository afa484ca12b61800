// SPDX-License-Identifier: Apache-2.0
// The entry points that send and receive, and those that map memory for the peer, or write into the
// memory that the peer has mapped.
#include "rsockets/io_mappings.hpp"
#include "rsockets/rsocket_calls.hpp"

#include <sys/mman.h>
#include <sys/uio.h>

#include <cerrno>

using namespace softverbs;

namespace {

ssize_t send_parts(int socket, const iovec* parts, std::size_t count, int flags,
                   const sockaddr* address = nullptr, socklen_t length = 0) {
  return waiting_call(socket, [&](rdma_socket& ours) {
    msghdr message{};
    message.msg_name = const_cast<sockaddr*>(address);
    message.msg_namelen = length;
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = count;
    return ours.send(message, flags);
  });
}

ssize_t receive_parts(int socket, const iovec* parts, std::size_t count, int flags,
                      sockaddr* address = nullptr, socklen_t* length = nullptr) {
  return waiting_call(socket, [&](rdma_socket& ours) {
    msghdr message{};
    if (address != nullptr && length != nullptr) {
      message.msg_name = address;
      message.msg_namelen = *length;
    }
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = count;
    const ssize_t got = ours.receive(message, flags);
    if (got >= 0 && message.msg_name != nullptr) *length = message.msg_namelen;
    return got;
  });
}

iovec part_of(const void* data, std::size_t length) noexcept {
  return {const_cast<void*>(data), length};
}

}  // namespace

SOFTVERBS_EXPORT ssize_t rrecv(int socket, void* data, std::size_t length, int flags) {
  SOFTVERBS_PASS_ON(rrecv, socket, data, length, flags);
  const iovec part = part_of(data, length);
  return receive_parts(socket, &part, 1, flags);
}

SOFTVERBS_EXPORT ssize_t rrecvfrom(int socket, void* data, std::size_t length, int flags,
                                   sockaddr* address, socklen_t* address_length) {
  SOFTVERBS_PASS_ON(rrecvfrom, socket, data, length, flags, address, address_length);
  const iovec part = part_of(data, length);
  return receive_parts(socket, &part, 1, flags, address, address_length);
}

SOFTVERBS_EXPORT ssize_t rrecvmsg(int socket, msghdr* message, int flags) {
  SOFTVERBS_PASS_ON(rrecvmsg, socket, message, flags);
  if (message->msg_control != nullptr && message->msg_controllen != 0) return outcome(ENOTSUP);
  return waiting_call(socket, [&](rdma_socket& ours) { return ours.receive(*message, flags); });
}

SOFTVERBS_EXPORT ssize_t rread(int socket, void* data, std::size_t length) {
  SOFTVERBS_PASS_ON(rread, socket, data, length);
  const iovec part = part_of(data, length);
  return receive_parts(socket, &part, 1, 0);
}

SOFTVERBS_EXPORT ssize_t rreadv(int socket, const iovec* parts, int count) {
  SOFTVERBS_PASS_ON(rreadv, socket, parts, count);
  if (count < 0) return outcome(EINVAL);
  return receive_parts(socket, parts, static_cast<std::size_t>(count), 0);
}

SOFTVERBS_EXPORT ssize_t rsend(int socket, const void* data, std::size_t length, int flags) {
  SOFTVERBS_PASS_ON(rsend, socket, data, length, flags);
  const iovec part = part_of(data, length);
  return send_parts(socket, &part, 1, flags);
}

SOFTVERBS_EXPORT ssize_t rsendto(int socket, const void* data, std::size_t length, int flags,
                                 const sockaddr* address, socklen_t address_length) {
  SOFTVERBS_PASS_ON(rsendto, socket, data, length, flags, address, address_length);
  const iovec part = part_of(data, length);
  return send_parts(socket, &part, 1, flags, address, address_length);
}

SOFTVERBS_EXPORT ssize_t rsendmsg(int socket, const msghdr* message, int flags) {
  SOFTVERBS_PASS_ON(rsendmsg, socket, message, flags);
  if (message->msg_control != nullptr && message->msg_controllen != 0) return outcome(ENOTSUP);
  return waiting_call(socket, [&](rdma_socket& ours) { return ours.send(*message, flags); });
}

SOFTVERBS_EXPORT ssize_t rwrite(int socket, const void* data, std::size_t length) {
  SOFTVERBS_PASS_ON(rwrite, socket, data, length);
  const iovec part = part_of(data, length);
  return send_parts(socket, &part, 1, 0);
}

SOFTVERBS_EXPORT ssize_t rwritev(int socket, const iovec* parts, int count) {
  SOFTVERBS_PASS_ON(rwritev, socket, parts, count);
  if (count < 0) return outcome(EINVAL);
  return send_parts(socket, parts, static_cast<std::size_t>(count), 0);
}

SOFTVERBS_EXPORT off_t riomap(int socket, void* memory, std::size_t length, int protection,
                              int flags, off_t offset) {
  SOFTVERBS_PASS_ON(riomap, socket, memory, length, protection, flags, offset);
  return waiting_call(socket, [&](rdma_socket& ours) -> ssize_t {
    const auto mappings = ours.mappings();
    if (!mappings || (protection & ~(PROT_WRITE | PROT_NONE)) != 0) return outcome(EINVAL);
    const connections_lock held;
    const int error = mappings->map(memory, length, (protection & PROT_WRITE) != 0, offset);
    return error == 0 ? offset : outcome(error);
  });
}

SOFTVERBS_EXPORT int riounmap(int socket, void* memory, std::size_t length) {
  SOFTVERBS_PASS_ON(riounmap, socket, memory, length);
  return static_cast<int>(waiting_call(socket, [&](rdma_socket& ours) -> ssize_t {
    const auto mappings = ours.mappings();
    if (!mappings) return outcome(EINVAL);
    const connections_lock held;
    return outcome(mappings->unmap(memory, length));
  }));
}

SOFTVERBS_EXPORT std::size_t riowrite(int socket, const void* data, std::size_t length,
                                      off_t offset, int flags) {
  SOFTVERBS_PASS_ON(riowrite, socket, data, length, offset, flags);
  return static_cast<std::size_t>(waiting_call(socket, [&](rdma_socket& ours) -> ssize_t {
    const auto mappings = ours.mappings();
    if (!mappings) return outcome(ENOTCONN);
    const bool waits = (flags & MSG_DONTWAIT) == 0 && !ours.is_nonblocking();
    return mappings->write(data, length, offset, waits);
  }));
}
