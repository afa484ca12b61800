// SPDX-License-Identifier: Apache-2.0
/// \file
/// Sends packets, and lists the queue pairs that wait until a connection accepts packets again.
#include "base/as_a_device.hpp"
#include "base/user_memory.hpp"
#include "wire/ends.hpp"
#include "wire/wire.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

namespace softverbs {
namespace {

/// The maximum number of packets that `owe` keeps for a peer, which may never read them.
constexpr std::size_t most_owed = 4096;

/// Sends a message whose payload may be in memory that the program has marked as inaccessible: a
/// peer may read memory into which a receive is posted, and such memory stays marked until the
/// completion is polled. AddressSanitizer's wrapper of sendmsg would check the memory, so the
/// wrapper is not called. ThreadSanitizer's wrapper has to be called, because it records that the
/// operations before a send happen before those after the matching receive.
ssize_t send_as_a_device(int socket, const msghdr& message) noexcept {
  const unwatched device;
  constexpr int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  return is_sanitized() ? ::syscall(SYS_sendmsg, socket, &message, flags)
                        : ::sendmsg(socket, &message, flags);
}

}  // namespace

sent wire::send(std::uint32_t target_qpn, const packet_header& header, const iovec* payload,
                std::size_t pieces, payload_of whose) {
  const std::uint32_t slot = target_qpn >> index_bits;
  if (!is_open() || slot == 0 || slot > last_slot) return sent::lost;
  auto& place = outlets_[slot];
  if (!place) place = std::make_unique<outlet>();
  outlet& way = *place;
  if (way.blocked) return sent::blocked;
  // The second attempt is needed if the process of the connection has died, and another process has
  // taken its slot since.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (way.socket < 0 && !connect(slot, way)) return way.blocked ? sent::blocked : sent::lost;
    const sent result = try_send(way, header, payload, pieces, whose);
    if (result == sent::blocked) block(slot, way);
    if (result != sent::lost) return result;
    lose(slot);
  }
  return sent::lost;
}

sent wire::try_send(outlet& way, const packet_header& header, const iovec* payload,
                    std::size_t pieces, payload_of whose) noexcept {
  if (way.answered && way.end && !way.ring &&
      send_notice(way.socket, notice::kind::changed_to_ring))
    way.ring.emplace(way.end->ring());
  if (way.ring) return write(way, header, payload, pieces, whose);
  // Enough for the header, and for all entries of a request.
  std::array<iovec, 64> parts;
  parts[0] = {const_cast<packet_header*>(&header), sizeof(header)};
  std::copy_n(payload, pieces, parts.begin() + 1);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = pieces + 1;
  for (;;) {
    if (send_as_a_device(way.socket, message) >= 0) return sent::yes;
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
      case ENOBUFS:
      case ENOMEM:
        return sent::blocked;
      case EFAULT:
        return sent::fault;
      default:
        return sent::lost;
    }
  }
}

sent wire::write(outlet& way, const packet_header& header, const iovec* payload, std::size_t pieces,
                 payload_of whose) noexcept {
  std::byte* to = way.ring->prepare(sizeof(header) + carried_bytes(header));
  if (to == nullptr) return way.ring->broken() ? sent::lost : sent::blocked;
  std::memcpy(to, &header, sizeof(header));
  to += sizeof(header);
  for (const iovec& piece : std::span(payload, pieces)) {
    if (whose == payload_of::device)
      std::memcpy(to, piece.iov_base, piece.iov_len);
    else if (!user_memory::copy(to, piece.iov_base, piece.iov_len))
      return sent::fault;
    to += piece.iov_len;
  }
  // If the notice doesn't fit in the socket, the socket holds earlier ones, which wake the reader.
  if (way.ring->publish()) send_notice(way.socket, notice::kind::something_to_read);
  return sent::yes;
}

bool wire::wait_until_writable(outlet& way) noexcept {
  constexpr int patience = 100;  // milliseconds
  pollfd end{way.socket, static_cast<short>(way.ring ? POLLIN : POLLOUT), 0};
  if (::poll(&end, 1, patience) != 1) return false;
  if (!way.ring) return true;
  std::array<std::byte, sizeof(notice)> message;
  return ::recv(way.socket, message.data(), message.size(), MSG_DONTWAIT) > 0;
}

void wire::block(std::uint32_t slot, outlet& way) noexcept {
  if (!way.ring && !watch(slot, way, EPOLLIN | EPOLLOUT)) return;
  way.blocked = true;
  if (way.ring)
    full_rings_.push_back(slot);
  else
    ++blocked_;
}

void wire::unblock(std::uint32_t slot) noexcept {
  outlet& way = *outlets_[slot];
  if (!way.blocked) return;
  way.blocked = false;
  const bool short_of_means = std::exchange(way.short_of_means, false);
  if (way.ring) {
    way.ring->stop_waiting();
    std::erase(full_rings_, slot);
  } else if (std::erase(full_rings_, slot) == 0 && !short_of_means) {
    --blocked_;
    if (way.socket >= 0) watch(slot, way, EPOLLIN);
  }
  if (way.socket < 0 && !way.owed.empty() && !connect(slot, way)) {
    if (way.blocked) return;
    way.owed.clear();
  }
  while (!way.owed.empty()) {
    const sent result = try_send(way, way.owed.front(), nullptr, 0);
    if (result == sent::blocked) return block(slot, way);
    if (result == sent::lost)
      lose(slot);
    else
      way.owed.pop_front();
  }
  for (auto& waiting : way.waiting) {
    writable_again_.insert(writable_again_.end(), waiting.begin(), waiting.end());
    waiting.clear();
  }
}

bool wire::watch(std::uint32_t slot, outlet& way, std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = outlet_tag | slot;
  return ::epoll_ctl(epoll_, EPOLL_CTL_MOD, way.socket, &event) == 0;
}

void wire::wait_writable(std::uint32_t target_qpn, std::uint32_t qpn, turn when) {
  if (!is_open()) return;
  auto& place = outlets_[target_qpn >> index_bits];
  if (!place || !place->blocked) {
    writable_again_.push_back(qpn);
    return;
  }
  auto& waiting = place->waiting[static_cast<std::size_t>(when)];
  if (std::find(waiting.begin(), waiting.end(), qpn) == waiting.end()) waiting.push_back(qpn);
}

void wire::owe(const packet_header& header) {
  if (send(header.target_qpn, header, nullptr, 0) != sent::blocked) return;
  auto& owed = outlets_[header.target_qpn >> index_bits]->owed;
  if (owed.size() < most_owed) owed.push_back(header);
}

bool wire::may_still_answer(std::uint32_t target_qpn) const noexcept {
  const std::uint32_t slot = target_qpn >> index_bits;
  if (!is_open() || slot >= slots || !outlets_[slot]) return false;
  if (outlets_[slot]->short_of_means) return true;
  // An answer may have arrived already, even from a process that has exited since. The peer may
  // also have opened a connection that waits to be accepted.
  pollfd newcomers{listener_, POLLIN, 0};
  if (has_unread_of(slot) || ::poll(&newcomers, 1, 0) == 1) return true;
  if (outlets_[slot]->socket < 0) return false;
  int unread = 0;
  pollfd peer{outlets_[slot]->socket, 0, 0};
  if (::poll(&peer, 1, 0) != 0)
    return false;  // without requested events, this reports only a closed connection
  if (outlets_[slot]->ring && outlets_[slot]->ring->is_unread()) return true;
  return ::ioctl(outlets_[slot]->socket, SIOCOUTQ, &unread) == 0 && unread > 0;
}

bool wire::has_unread_of(std::uint32_t slot) const noexcept {
  return std::ranges::any_of(inlets_, [slot](const auto& from) {
    if (from->slot != slot && from->slot != 0) return false;
    if (from->ring && !from->ring->is_empty()) return true;
    int unread = 0;
    return ::ioctl(from->socket, SIOCINQ, &unread) == 0 && unread > 0;
  });
}

}  // namespace softverbs
