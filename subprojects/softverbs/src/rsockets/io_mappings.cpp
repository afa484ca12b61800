// SPDX-License-Identifier: Apache-2.0
#include "rsockets/io_mappings.hpp"

#include "base/user_memory.hpp"
#include "connections/event_channel.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <thread>

namespace softverbs {
namespace {

/// The maximum number of data bytes in one packet.
constexpr std::size_t most_data = 64 * 1024;

}  // namespace

/// The header of each packet. In a write, the data comes after it.
struct io_mappings::packet {
  enum class what : std::uint32_t { room = 1, mapping, write };

  what kind{};
  /// The index of the mapping. In a packet of the kind `room`, the number of mappings that the
  /// sender allows its peer.
  std::uint32_t index = 0;
  std::int64_t offset = 0;
  /// The length of the mapping, or 0 if it was removed. In a write, the length of the data.
  std::uint64_t length = 0;
};

io_mappings::io_mappings(int socket, int stream, unsigned room) noexcept
    : socket_(socket), stream_(stream), room_(room) {}

io_mappings::~io_mappings() { ::close(socket_); }

void io_mappings::begin() {
  tell({.kind = packet::what::room, .index = room_});
  // Without a thread, the peer's notices of mappings would stay in the socket until the program
  // calls another function, and could fill the socket.
  if (room_ != 0) start_thread();
}

bool io_mappings::tell(const packet& said) const noexcept {
  return ::send(socket_, &said, sizeof(said), MSG_DONTWAIT | MSG_NOSIGNAL) ==
             static_cast<ssize_t>(sizeof(said)) ||
         errno != EAGAIN;
}

std::uint32_t io_mappings::free_index() const {
  std::uint32_t index = 0;
  while (std::ranges::any_of(own_, [&](const mapping& each) { return each.index == index; }))
    ++index;
  return index;
}

int io_mappings::map(void* memory, std::size_t length, bool for_peer, off_t& offset) {
  serve();
  if (offset == -1) offset = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(memory));
  mapping made{{}, static_cast<std::byte*>(memory), length, offset};
  if (for_peer) {
    made.index = free_index();
    if (peer_room_ && *made.index >= *peer_room_) return ENOMEM;
    if (const int error = start_thread()) return error;
    is_written_to_ = true;
  }
  own_.push_back(made);
  const bool told = !for_peer || tell({.kind = packet::what::mapping,
                                       .index = *made.index,
                                       .offset = offset,
                                       .length = length});
  if (told) return 0;
  own_.pop_back();
  return ENOMEM;
}

int io_mappings::unmap(const void* memory, std::size_t length) {
  serve();
  const auto found = std::ranges::find_if(
      own_, [&](const mapping& each) { return each.memory == memory && each.length == length; });
  if (found == own_.end()) return EINVAL;
  if (found->index) tell({.kind = packet::what::mapping, .index = *found->index});
  own_.erase(found);
  return 0;
}

ssize_t io_mappings::write(const void* data, std::size_t length, off_t offset, bool waits) {
  const auto* from = static_cast<const std::byte*>(data);
  std::size_t written = 0;
  while (written < length) {
    packet head{.kind = packet::what::write, .offset = offset + static_cast<off_t>(written)};
    {
      const connections_lock held;
      serve();
      if (is_over_ || !may_write_) {
        errno = ECONNRESET;
        return written != 0 ? static_cast<ssize_t>(written) : -1;
      }
      const auto into = std::ranges::find_if(targets_, [&](const auto& each) {
        const auto& [at, size] = each.second;
        return head.offset >= at && head.offset - at < static_cast<off_t>(size);
      });
      if (into == targets_.end()) break;
      head.index = into->first;
      const auto room =
          static_cast<std::size_t>(into->second.offset - head.offset) + into->second.length;
      head.length = std::min({length - written, room, most_data});
    }
    std::array<iovec, 2> parts{iovec{&head, sizeof(head)},
                               iovec{const_cast<std::byte*>(from + written), head.length}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    if (::sendmsg(socket_, &message, MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT)) < 0) {
      if (errno == EPIPE) errno = ECONNRESET;
      return written != 0 ? static_cast<ssize_t>(written) : -1;
    }
    written += head.length;
  }
  return static_cast<ssize_t>(written);
}

void io_mappings::catch_up() {
  if (!is_written_to_.load(std::memory_order_relaxed)) return;
  const connections_lock held;
  serve();
}

void io_mappings::serve() {
  // The caller holds `connections_lock`, which protects this buffer.
  static std::array<std::byte, most_data> data;
  while (!is_over_) {
    packet said;
    std::array<iovec, 2> parts{iovec{&said, sizeof(said)}, iovec{data.data(), data.size()}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t got = ::recvmsg(socket_, &message, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      is_over_ = true;
    } else if (got < static_cast<ssize_t>(sizeof(said)) || (message.msg_flags & MSG_TRUNC) != 0) {
      break_connection();
    } else {
      take(said, data.data(), static_cast<std::size_t>(got) - sizeof(said));
    }
  }
}

void io_mappings::take(const packet& said, const std::byte* data, std::size_t length) {
  switch (said.kind) {
    case packet::what::room:
      peer_room_ = said.index;
      return;
    case packet::what::mapping:
      if (said.length == 0)
        targets_.erase(said.index);
      else if (said.index < room_)
        targets_[said.index] = {said.offset, said.length};
      return;
    case packet::what::write:
      for (const mapping& each : own_) {
        if (each.index != said.index || said.offset < each.offset) continue;
        const auto start = static_cast<std::size_t>(said.offset - each.offset);
        if (start <= each.length && length <= each.length - start &&
            user_memory::copy(each.memory + start, data, length))
          return;
      }
      break;
  }
  break_connection();
}

void io_mappings::break_connection() noexcept {
  is_over_ = true;
  ::shutdown(socket_, SHUT_RDWR);
  ::shutdown(stream_, SHUT_RDWR);
}

void io_mappings::stop() noexcept {
  const int error = errno;
  is_over_ = true;
  own_.clear();
  // The shutdown ends the thread, if there is one in this process.
  if (served_by_ == ::getpid()) ::shutdown(socket_, SHUT_RDWR);
  errno = error;
}

int io_mappings::start_thread() {
  if (served_by_ != 0) return 0;
  // The new thread inherits this mask, so that only the program's own threads handle signals.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  try {
    std::thread([self = shared_from_this()] { self->run(); }).detach();
    served_by_ = ::getpid();
  } catch (const std::system_error& failed) {
    error = failed.code().value();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

void io_mappings::run() {
  ::pthread_setname_np(::pthread_self(), "softverbs-io");
  for (;;) {
    pollfd readable{socket_, POLLIN, 0};
    if (::poll(&readable, 1, -1) < 0 && errno != EINTR) return;
    const connections_lock held;
    serve();
    if (is_over_) return;
  }
}

}  // namespace softverbs
