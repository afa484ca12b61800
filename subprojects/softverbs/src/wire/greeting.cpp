// SPDX-License-Identifier: Apache-2.0
#include "wire/greeting.hpp"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace softverbs {
namespace {

std::optional<ucred> end_of(int socket) noexcept {
  ucred end{};
  socklen_t length = sizeof(end);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &end, &length) != 0) return std::nullopt;
  return end;
}

}  // namespace

bool is_of_same_user(int socket) noexcept {
  const auto end = end_of(socket);
  return end && end->uid == ::geteuid();
}

pid_t process_behind(int socket) noexcept {
  const auto end = end_of(socket);
  return end ? end->pid : 0;
}

bool send_notice(int socket, const notice& what, const attachment& with) noexcept {
  notice copy = what;
  iovec part{&copy, sizeof(copy)};
  const std::size_t bytes = (with[0] < 0 ? 0 : with[1] < 0 ? 1 : 2) * sizeof(int);
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(with))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (bytes != 0) {
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* attached = CMSG_FIRSTHDR(&message);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(attached), with.data(), bytes);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool send_notice(int socket, notice::kind what) noexcept {
  notice message{};
  message.what = what;
  return send_notice(socket, message, nothing_attached);
}

descriptors::~descriptors() {
  for (const int each : taken_)
    if (each >= 0) ::close(each);
}

ssize_t descriptors::receive(int socket, std::byte* to, std::size_t size) noexcept {
  iovec part{to, size};
  // The kernel discards descriptors that don't fit here.
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(attachment))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  // With MSG_TRUNC, the result is the full length even if the message doesn't fit.
  const ssize_t received = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  if (received < 0) return received;
  for (cmsghdr* attached = CMSG_FIRSTHDR(&message); attached != nullptr;
       attached = CMSG_NXTHDR(&message, attached)) {
    if (attached->cmsg_level != SOL_SOCKET || attached->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (attached->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t at = 0; at < count; ++at) {
      int taken = -1;
      std::memcpy(&taken, CMSG_DATA(attached) + at * sizeof(int), sizeof(taken));
      if (taken_[0] < 0)
        taken_[0] = taken;
      else if (taken_[1] < 0)
        taken_[1] = taken;
      else
        ::close(taken);
    }
  }
  return received;
}

std::optional<notice> read_notice(const std::byte* message, std::size_t length) noexcept {
  if (length != sizeof(notice)) return std::nullopt;
  notice result;
  std::memcpy(&result, message, sizeof(result));
  return result;
}

}  // namespace softverbs
