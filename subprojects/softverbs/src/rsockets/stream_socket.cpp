// SPDX-License-Identifier: Apache-2.0
#include "rsockets/stream_socket.hpp"

#include "connections/event_channel.hpp"
#include "connections/protocol.hpp"
#include "rsockets/io_mappings.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace softverbs {
namespace {

constexpr int understood_flags = MSG_PEEK | MSG_DONTWAIT | MSG_WAITALL;

/// The interval, in milliseconds, at which a waiting thread tries again to connect.
constexpr int wait_of_attempts = static_cast<int>(between_attempts / millisecond);

void close_all(std::initializer_list<int> descriptors) noexcept {
  const int error = errno;
  for (const int each : descriptors)
    if (each >= 0) ::close(each);
  errno = error;
}

void yield() noexcept {
  ::sched_yield();
  errno = EAGAIN;
}

}  // namespace

/// The message by which the connecting end introduces itself. The descriptor of the accepting end's
/// stream is sent with it.
struct stream_socket::introduction {
  static constexpr std::uint32_t expected_mark = 0x53565253;

  std::uint32_t mark = expected_mark;
  std::uint32_t room = 0;
  ibv_gid source{};
  ibv_gid target{};
  std::uint16_t source_port = 0;
  std::uint16_t target_port = 0;
  std::uint32_t reserved = 0;
};

stream_socket::stream_socket(int descriptor, sa_family_t family) noexcept
    : rdma_socket(descriptor, RDMA_PS_TCP, family) {}

int stream_socket::listen(int backlog) {
  if (stage_ == stage::listening) return 0;
  if (stage_ != stage::idle) return EINVAL;
  if (!is_bound())
    if (const int error = reserve(local_)) return error;
  if (backlog <= 0 || backlog > longest_backlog) backlog = longest_backlog;
  if (!reserved_->listen(backlog)) return errno;
  // This descriptor is readable when a client has connected to any of the reserved names.
  const int callers = ::epoll_create1(EPOLL_CLOEXEC);
  if (callers < 0) return errno;
  epoll_event entry{};
  entry.events = EPOLLIN;
  for (const int each : reserved_->sockets)
    if (each >= 0 && ::epoll_ctl(callers, EPOLL_CTL_ADD, each, &entry) != 0) {
      const int error = errno;
      ::close(callers);
      return error;
    }
  if (const int error = become(callers)) return error;
  stage_ = stage::listening;
  return 0;
}

int stream_socket::become(int file) noexcept {
  const int flags = ::fcntl(descriptor_, F_GETFL);
  const int closes = (::fcntl(descriptor_, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0;
  ::fcntl(file, F_SETFL, flags & O_NONBLOCK);
  const int result = ::dup3(file, descriptor_, closes) < 0 ? errno : 0;
  ::close(file);
  return result;
}

void stream_socket::apply_sizes(int stream) const noexcept {
  for (const int name : {SO_SNDBUF, SO_RCVBUF}) {
    // The stored value is halved, because the kernel doubles it.
    const int half = options_.value(SOL_SOCKET, name) / 2;
    ::setsockopt(stream, SOL_SOCKET, name, &half, sizeof(half));
  }
}

void stream_socket::share_memory(int with, std::optional<unsigned> peer_room) {
  // The socket is made blocking, so that the flags of each call determine whether the call waits.
  ::fcntl(with, F_SETFL, 0);
  const auto room = static_cast<unsigned>(options_.value(SOL_RDMA, RDMA_IOMAPSIZE));
  mappings_ = std::make_shared<io_mappings>(with, descriptor_, room);
  if (peer_room) mappings_->set_peer_room(*peer_room);
  mappings_->begin();
}

// The functions of the connecting end.

int stream_socket::begin_to_connect(const sockaddr* address) {
  switch (stage_) {
    case stage::connecting:
      return EALREADY;
    case stage::connected:
      return EISCONN;
    case stage::listening:
      return EINVAL;
    default:
      break;
  }
  const auto target = read_address(address);
  if (!target) return EINVAL;
  if (target->family != family_) return EAFNOSUPPORT;
  if (const int error = find_way(*target, way_)) return error;
  if (!is_bound())
    if (const int error = reserve(way_.source)) return error;
  local_.ip = way_.source.ip;
  remote_ = *target;
  error_ = 0;
  stage_ = stage::connecting;
  gives_up_ = now() + longest_answer;
  is_refused_at_ = now() + longest_absence;
  try_to_connect();
  return 0;
}

void stream_socket::try_to_connect() {
  if (stage_ != stage::connecting) return;
  const int result = attempt();
  if (result == EINPROGRESS) return;
  error_ = result;
  stage_ = result == 0 ? stage::connected : stage::failed;
}

int stream_socket::attempt() {
  const int to = connect_to(space_, way_.target);
  if (to >= 0) return introduce(to);
  if (errno == EMFILE || errno == ENFILE) return errno;
  if (errno == ECONNREFUSED && now() >= is_refused_at_) return ECONNREFUSED;
  // There is no listener yet, or its backlog is full, or memory is lacking.
  return now() >= gives_up_ ? ETIMEDOUT : EINPROGRESS;
}

int stream_socket::introduce(int to) {
  static_assert(sizeof(introduction) == 48);
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    close_all({to});
    return errno;
  }
  introduction said;
  said.room = static_cast<std::uint32_t>(options_.value(SOL_RDMA, RDMA_IOMAPSIZE));
  said.source = local_.ip;
  said.source_port = local_.port;
  said.target = way_.target.ip;
  said.target_port = way_.target.port;
  iovec part{&said, sizeof(said)};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const passed = CMSG_FIRSTHDR(&message);
  passed->cmsg_level = SOL_SOCKET;
  passed->cmsg_type = SCM_RIGHTS;
  passed->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(passed), &ends[1], sizeof(int));
  apply_sizes(ends[0]);
  int error = ::sendmsg(to, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
  ::close(ends[1]);
  if (error == 0)
    error = become(ends[0]);
  else
    ::close(ends[0]);
  if (error == 0)
    share_memory(to, std::nullopt);
  else
    ::close(to);
  return error == EPIPE ? ECONNREFUSED : error;
}

int stream_socket::connect(const sockaddr* address) {
  {
    const connections_lock held;
    try_to_connect();
    if (const int error = begin_to_connect(address)) return error;
    // As with librdmacm, a nonblocking socket returns EINPROGRESS even if this first attempt has
    // already connected it.
    if (is_nonblocking()) return EINPROGRESS;
  }
  for (;;) {
    {
      const connections_lock held;
      try_to_connect();
      if (stage_ == stage::connected) return 0;
      if (stage_ != stage::connecting) return take_error();
    }
    if (::poll(nullptr, 0, wait_of_attempts) < 0) return errno;
  }
}

int stream_socket::take_error() noexcept { return std::exchange(error_, 0); }

int stream_socket::await_connection() {
  if (stage_ == stage::connected) return 0;
  const connections_lock held;
  try_to_connect();
  if (stage_ == stage::connected) return 0;
  if (stage_ == stage::connecting) return EAGAIN;
  const int error = take_error();
  return error != 0 ? error : ENOTCONN;
}

std::optional<short> stream_socket::readiness(short events) {
  if (stage_ == stage::connected || stage_ == stage::listening) return std::nullopt;
  const connections_lock held;
  try_to_connect();
  switch (stage_) {
    case stage::connecting:
      return short{0};
    case stage::failed:
      return static_cast<short>((events & (POLLIN | POLLOUT)) | POLLERR);
    default:
      return std::nullopt;
  }
}

// The functions of a listener.

int stream_socket::accept() {
  if (stage_ != stage::listening) {
    errno = EINVAL;
    return -1;
  }
  for (;;) {
    const int caller = take_caller();
    if (caller >= 0) {
      const int made = welcome(caller);
      if (made >= 0) return made;
    } else if (errno != EAGAIN || is_nonblocking()) {
      return -1;
    } else {
      pollfd called{descriptor_, POLLIN, 0};
      if (::poll(&called, 1, -1) < 0) return -1;
    }
  }
}

int stream_socket::take_caller() {
  const connections_lock held;
  if (!reserved_) {
    errno = EBADF;
    return -1;
  }
  for (const int each : reserved_->sockets) {
    if (each < 0) continue;
    const int caller = ::accept4(each, nullptr, nullptr, SOCK_CLOEXEC);
    if (caller >= 0 || errno != EAGAIN) return caller;
  }
  errno = EAGAIN;
  return -1;
}

int stream_socket::welcome(int caller) {
  introduction said;
  iovec part{&said, sizeof(said)};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  // The client's introduction has usually arrived already.
  pollfd readable{caller, POLLIN, 0};
  ::poll(&readable, 1, static_cast<int>(longest_silence / millisecond));
  const ssize_t got = ::recvmsg(caller, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  int stream = -1;
  if (const cmsghdr* const passed = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
      passed != nullptr && passed->cmsg_level == SOL_SOCKET && passed->cmsg_type == SCM_RIGHTS &&
      passed->cmsg_len == CMSG_LEN(sizeof(int)))
    std::memcpy(&stream, CMSG_DATA(passed), sizeof(int));
  if (got != static_cast<ssize_t>(sizeof(said)) || said.mark != introduction::expected_mark ||
      stream < 0) {
    close_all({caller, stream});
    return -1;
  }
  ::fcntl(stream, F_SETFL, ::fcntl(descriptor_, F_GETFL) & O_NONBLOCK);
  ::fcntl(stream, F_SETFD, ::fcntl(descriptor_, F_GETFD));
  const connections_lock held;
  auto made = std::make_shared<stream_socket>(stream, family_);
  made->options_ = options_;
  made->local_ = as_own({.ip = said.target, .port = said.target_port});
  made->remote_ = as_own({.ip = said.source, .port = said.source_port});
  made->stage_ = stage::connected;
  made->apply_sizes(stream);
  made->share_memory(caller, said.room);
  add(std::move(made));
  return stream;
}

// The functions of both ends of a connection.

std::optional<ip_address> stream_socket::peer() const {
  return stage_ == stage::connected ? std::optional(remote_) : std::nullopt;
}

std::shared_ptr<io_mappings> stream_socket::mappings() {
  const connections_lock held;
  try_to_connect();
  return mappings_;
}

ssize_t stream_socket::send(const msghdr& message, int flags) {
  if (message.msg_name != nullptr) {
    errno = EISCONN;
    return -1;
  }
  if (const int error = await_connection()) {
    errno = error;
    return -1;
  }
  const ssize_t sent = ::sendmsg(descriptor_, &message, (flags & understood_flags) | MSG_NOSIGNAL);
  if (sent < 0 && errno == EAGAIN) yield();
  if (sent < 0 && errno == EPIPE) errno = ECONNRESET;
  return sent;
}

ssize_t stream_socket::receive(msghdr& message, int flags) {
  if (const int error = await_connection()) {
    errno = error;
    return -1;
  }
  void* const name = std::exchange(message.msg_name, nullptr);
  const socklen_t room = std::exchange(message.msg_namelen, 0);
  const ssize_t got = ::recvmsg(descriptor_, &message, flags & understood_flags);
  // Yields, so that a program that calls this in a loop doesn't keep the processor from its peer.
  if (got < 0 && errno == EAGAIN) yield();
  if (got >= 0 && mappings_) mappings_->catch_up();
  if (got >= 0 && name != nullptr) message.msg_namelen = copy_address(remote_, name, room);
  message.msg_name = name;
  return got;
}

int stream_socket::set_option(int level, int name, const void* value, socklen_t length) {
  const bool has_begun = stage_ == stage::connecting || stage_ == stage::connected;
  if (level == SOL_RDMA && has_begun) return EINVAL;
  return rdma_socket::set_option(level, name, value, length);
}

int stream_socket::get_option(int level, int name, void* value, socklen_t* length) {
  if (level != SOL_SOCKET || name != SO_ERROR)
    return rdma_socket::get_option(level, name, value, length);
  if (value == nullptr || length == nullptr) return EFAULT;
  try_to_connect();
  int error = take_error();
  socklen_t room = sizeof(error);
  if (error == 0) ::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &room);
  *length = static_cast<socklen_t>(std::min<std::size_t>(*length, sizeof(error)));
  std::memcpy(value, &error, *length);
  return 0;
}

int stream_socket::shut_down(int how) {
  try_to_connect();
  if (stage_ != stage::connected) return ENOTCONN;
  if (mappings_ && how != SHUT_RD) mappings_->end_writes();
  return rdma_socket::shut_down(how);
}

void stream_socket::close() {
  if (mappings_) mappings_->stop();
  rdma_socket::close();
}

}  // namespace softverbs
