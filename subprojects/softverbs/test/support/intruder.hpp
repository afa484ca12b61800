// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catch.hpp"
#include "support/fabric.hpp"
#include "wire/greeting.hpp"
#include "wire/packet.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

/// The address of the socket on which the process of a queue pair listens.
struct process_name {
  explicit process_name(std::uint32_t qpn) noexcept {
    name.sun_family = AF_UNIX;
    const int written =
        // steady: the name contains the number of a process that belongs to this test
        std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "softverbs/7/%u", qpn >> 14);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                    static_cast<std::size_t>(written));
  }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&name); }

  sockaddr_un name{};
  socklen_t length = 0;
};

/// A connection to the process to which a queue pair belongs. It is opened without the library.
class intruder {
 public:
  explicit intruder(std::uint32_t qpn)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    REQUIRE(connect(socket_, qpn) == 0);
    const timeval limit{patience.count(), 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  intruder(const intruder&) = delete;
  intruder& operator=(const intruder&) = delete;
  ~intruder() { ::close(socket_); }

  /// Connects and immediately disconnects, without waiting until the connection is accepted.
  /// Returns false if the backlog is full.
  static bool takes_a_place(std::uint32_t qpn) {
    const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int error = connect(socket, qpn) == 0 ? 0 : errno;
    ::close(socket);
    // Only these two results tell whether the backlog is full.
    INFO(std::strerror(error));
    REQUIRE((error == 0 || error == EAGAIN));
    return error == 0;
  }

  /// Starts a handshake. Passes `descriptor` to the other end unless it is negative.
  void greet(int descriptor) {
    softverbs::notice greeting{};
    greeting.what = softverbs::notice::kind::greeting;
    send_with(&greeting, sizeof(greeting), {descriptor});
  }
  /// An answer that the device has sent, and the descriptors that came with it.
  struct answer {
    softverbs::notice notice;
    std::vector<int> descriptors;
  };
  std::optional<answer> hear();
  /// Waits for the answer, but does not read it. Returns false if none arrives.
  bool is_answered() const {
    pollfd own{socket_, POLLIN, 0};
    constexpr std::chrono::milliseconds limit = patience;
    return ::poll(&own, 1, limit.count()) == 1 && own.revents == POLLIN;
  }
  void send_with(const void* bytes, std::size_t length, const std::vector<int>& descriptors);
  /// Returns true if the other end has closed the connection.
  bool has_ended() const {
    pollfd own{socket_, 0, 0};
    return ::poll(&own, 1, 0) == 1;
  }

  /// Sends a packet. Waits until the socket has room, so that no packet is lost while the
  /// connection is still waiting to be accepted.
  void send(const void* bytes, std::size_t length) {
    // The send may fail because the device may already have closed the connection.
    [[maybe_unused]] const ssize_t sent = ::send(socket_, bytes, length, MSG_NOSIGNAL);
  }

 private:
  static int connect(int socket, std::uint32_t qpn) {
    const process_name there(qpn);
    return ::connect(socket, there.get(), there.length);
  }

  int socket_ = -1;
};

inline void intruder::send_with(const void* bytes, std::size_t length,
                                const std::vector<int>& descriptors) {
  iovec part{const_cast<void*>(bytes), length};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(64 * sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<int> open;
  for (const int each : descriptors)
    if (each >= 0) open.push_back(each);
  if (!open.empty()) {
    const std::size_t size = open.size() * sizeof(int);
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* attached = CMSG_FIRSTHDR(&message);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(attached), open.data(), size);
  }
  [[maybe_unused]] const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
}

inline std::optional<intruder::answer> intruder::hear() {
  const timeval limit{patience.count(), 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  answer result{};
  iovec part{&result.notice, sizeof(result.notice)};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(8 * sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  if (::recvmsg(socket_, &message, MSG_CMSG_CLOEXEC) != sizeof(result.notice)) return std::nullopt;
  if (const cmsghdr* attached = CMSG_FIRSTHDR(&message)) {
    result.descriptors.resize((attached->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    std::memcpy(result.descriptors.data(), CMSG_DATA(attached),
                result.descriptors.size() * sizeof(int));
  }
  return result;
}

/// Waits until the device has accepted all earlier connections, so that it would accept the next
/// one immediately. This is necessary because connections from an earlier test may still be
/// waiting: once librdmacm has been used, it keeps devices open.
inline void let_everybody_in(std::uint32_t qpn) {
  intruder last(qpn);
  last.greet(-1);
  REQUIRE(last.is_answered());
  // steady: this pause uses the same clock as the device, which accepts at most sixteen connections
  // per millisecond
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

/// Returns the header of a packet that claims to come from the left end.
inline softverbs::packet_header forged(const connection& link) {
  softverbs::packet_header header{};
  header.kind = softverbs::packet_kind::write;
  header.flags = softverbs::packet_flag::first | softverbs::packet_flag::last;
  header.network = on_ethernet() ? 2 : 0;
  header.target_qpn = link.right.pair->qp_num;
  header.source_qpn = link.left.pair->qp_num;
  return header;
}
