// SPDX-License-Identifier: Apache-2.0
#include "wire/wire.hpp"

#include "base/as_a_device.hpp"
#include "wire/network_header.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace softverbs {
namespace {

/// Part of the sockets' names: processes whose packets differ don't meet.
constexpr unsigned protocol_version = 2;

/// More than there are slots can only be somebody playing tricks.
constexpr std::size_t most_inlets = 2 * wire::slots;

/// Packets that are taken from one peer before the next one's turn.
constexpr unsigned packets_in_a_row = 16;

/// How many polls with nothing but one quiet peer go by between two looks at
/// everything else.
constexpr unsigned looks_between = 8;

/// Owed packets that a peer never reads must not pile up.
constexpr std::size_t most_owed = 4096;

constexpr std::uint64_t listener_tag = ~std::uint64_t{0};
constexpr std::uint64_t outlet_tag = std::uint64_t{1} << 63;

struct address {
  sockaddr_un name{};
  socklen_t length = 0;
};

address address_of(std::uint32_t slot) noexcept {
  address result;
  result.name.sun_family = AF_UNIX;
  // The leading zero byte makes the name abstract.
  const int length = std::snprintf(result.name.sun_path + 1, sizeof(result.name.sun_path) - 1,
                                   "softverbs/%u/%u", protocol_version, slot);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                         static_cast<std::size_t>(length));
  return result;
}

int open_socket() noexcept {
  return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/// What is sent may lie in memory that the program has marked as untouchable until a completion: a
/// peer may read what a receive is going to fill. AddressSanitizer's own function would look at it;
/// ThreadSanitizer's has to, since what was sent before one comes before what was received.
ssize_t send_as_a_device(int socket, const msghdr& message) noexcept {
  const unwatched device;
  constexpr int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
  return is_sanitized() ? ::syscall(SYS_sendmsg, socket, &message, flags)
                        : ::sendmsg(socket, &message, flags);
}

}  // namespace

struct wire::outlet {
  int socket = -1;
  bool blocked = false;
  bool watched = false;
  std::array<std::vector<std::uint32_t>, 3> waiting;  ///< by enum turn
  std::deque<packet_header> owed;

  outlet() = default;
  outlet(const outlet&) = delete;
  outlet& operator=(const outlet&) = delete;
  ~outlet() { disconnect(); }
  void disconnect() noexcept {
    if (socket >= 0) ::close(socket);
    socket = -1;
    watched = false;
  }
};

struct wire::inlet {
  explicit inlet(int connected) noexcept : socket(connected) {}
  inlet(const inlet&) = delete;
  inlet& operator=(const inlet&) = delete;
  ~inlet() { ::close(socket); }

  int socket;
  unsigned in_a_row = 0;
  bool ready = false;
};

wire::wire() = default;
wire::~wire() { close(); }

int wire::take_slot() noexcept {
  // Not the first free one: the numbers of the queue pairs of a process that died
  // should not come back soon.
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const auto start = static_cast<std::uint32_t>(now.tv_nsec >> 4) ^
                     static_cast<std::uint32_t>(::getpid()) * 2654435761U;
  for (std::uint32_t tried = 0; tried < last_slot; ++tried) {
    const std::uint32_t slot = 1 + (start + tried) % last_slot;
    const address here = address_of(slot);
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&here.name), here.length) == 0) {
      slot_ = slot;
      return 0;
    }
    if (errno != EADDRINUSE) return errno;
  }
  return EMFILE;
}

int wire::open() {
  outlets_.resize(slots);
  if (const int error = staging_.open(largest_packet)) return error;
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  listener_ = open_socket();
  int error = epoll_ < 0 || listener_ < 0 ? errno : take_slot();
  if (error == 0 && ::listen(listener_, SOMAXCONN) != 0) error = errno;
  if (error == 0) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = listener_tag;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &event) != 0) error = errno;
  }
  if (error != 0) close();
  return error;
}

void wire::close() noexcept {
  for (const auto& way : outlets_) {
    // A peer that gets no answer to what it sent before we left would have to take
    // us for dead.
    while (way && !way->owed.empty() && way->socket >= 0) {
      const sent result = try_send(*way, way->owed.front(), nullptr, 0);
      pollfd writable{way->socket, POLLOUT, 0};
      if (result == sent::blocked && ::poll(&writable, 1, 100) == 1) continue;
      if (result != sent::yes) break;
      way->owed.pop_front();
    }
  }
  outlets_.clear();
  inlets_.clear();
  ready_.clear();
  writable_again_.clear();
  blocked_ = 0;
  if (listener_ >= 0) ::close(listener_);
  if (epoll_ >= 0) ::close(epoll_);
  hear_multicasts(false);
  listener_ = -1;
  epoll_ = -1;
  staging_.close();
}

void wire::abandon() noexcept {
  for (const auto& way : outlets_)
    if (way) way->owed.clear();
  close();
}

void wire::accept_all() noexcept {
  for (;;) {
    const int connected = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connected < 0) return;
    if (inlets_.size() >= most_inlets) {
      ::close(connected);
      continue;
    }
    auto& added = inlets_.emplace_back(std::make_unique<inlet>(connected));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = added.get();
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, connected, &event) != 0) close_inlet(*added);
  }
}

void wire::close_inlet(inlet& from) noexcept {
  // Closing does not take it off while a child, between fork and exec, has the socket as well: it
  // would be reported again, with a pointer to what is gone.
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, from.socket, nullptr);
  std::erase(ready_, &from);
  std::erase_if(inlets_, [&](const auto& each) { return each.get() == &from; });
}

void wire::look(bool thoroughly) noexcept {
  hearers_known_ = false;
  if (!thoroughly && blocked_ == 0 && inlets_.size() == 1 && ++looks_ % looks_between != 0) {
    if (inlet& only = *inlets_.front(); !only.ready) {
      only.ready = true;
      ready_.push_back(&only);
    }
    return;
  }
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  bool knocked = false;
  for (int at = 0; at < count; ++at) {
    const epoll_event& event = events[static_cast<std::size_t>(at)];
    if (event.data.u64 == listener_tag) {
      knocked = true;
    } else if ((event.data.u64 & outlet_tag) != 0) {
      unblock(static_cast<std::uint32_t>(event.data.u64 & ~outlet_tag));
    } else if (auto* from = static_cast<inlet*>(event.data.ptr); !from->ready) {
      from->ready = true;
      ready_.push_back(from);
    }
  }
  if (knocked) accept_all();
}

const packet* wire::next() noexcept {
  while (!ready_.empty()) {
    if (turn_ >= ready_.size()) turn_ = 0;
    inlet& from = *ready_[turn_];
    if (from.in_a_row++ >= packets_in_a_row) {
      from.in_a_row = 0;
      ++turn_;
      continue;
    }
    // With MSG_TRUNC, the length of a longer message is told, too.
    const ssize_t received =
        ::recv(from.socket, staging_.data(), staging_.size(), MSG_DONTWAIT | MSG_TRUNC);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
      from.ready = false;
      from.in_a_row = 0;
      ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(turn_));
      continue;
    }
    if (received <= 0 || !well_formed(static_cast<std::size_t>(received))) {
      close_inlet(from);
      continue;
    }
    return &current_;
  }
  return nullptr;
}

bool wire::well_formed(std::size_t received) noexcept {
  if (received < sizeof(packet_header) || received > largest_packet) return false;
  packet_header& header = current_.header;
  std::memcpy(&header, staging_.data(), sizeof(header));
  current_.payload = staging_.data() + sizeof(header);
  if (header.payload != received - sizeof(header)) return false;
  if ((header.flags & ~packet_flag::all) != 0 || header.psn > psn_mask) return false;
  switch (header.kind) {
    case packet_kind::send:
    case packet_kind::write:
    case packet_kind::read_response:
      return true;
    case packet_kind::datagram:
      return header.payload >= sizeof(network_header) &&
             header.payload <= sizeof(network_header) + limits::datagram_bytes;
    case packet_kind::read_request:
    case packet_kind::acknowledge:
      return header.payload == 0;
    case packet_kind::refuse:
      return header.payload == 0 && header.reason >= refusal::sequence &&
             header.reason <= refusal::remote_operation && header.rnr_timer < 32;
    default:
      return carries_operands(header.kind) && header.payload == sizeof(atomic_operands);
  }
}

bool wire::connect(std::uint32_t slot, outlet& way) noexcept {
  way.socket = open_socket();
  if (way.socket < 0) return false;
  const address there = address_of(slot);
  if (::connect(way.socket, reinterpret_cast<const sockaddr*>(&there.name), there.length) == 0)
    return true;
  way.disconnect();
  return false;
}

sent wire::try_send(outlet& way, const packet_header& header, const iovec* payload,
                    std::size_t pieces) noexcept {
  // One more than a request's entries, for the header.
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

sent wire::send(std::uint32_t target_qpn, const packet_header& header, const iovec* payload,
                std::size_t pieces) {
  const std::uint32_t slot = target_qpn >> index_bits;
  if (!is_open() || slot == 0 || slot > last_slot) return sent::lost;
  auto& place = outlets_[slot];
  if (!place) place = std::make_unique<outlet>();
  outlet& way = *place;
  if (way.blocked) return sent::blocked;
  // The second try is for a connection to a process that died, if another one has
  // taken its slot meanwhile.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (way.socket < 0 && !connect(slot, way)) return sent::lost;
    const sent result = try_send(way, header, payload, pieces);
    if (result == sent::blocked) block(slot, way);
    if (result != sent::lost) return result;
    way.disconnect();
  }
  return sent::lost;
}

int wire::hear_multicasts(bool wanted) noexcept {
  if (!wanted) {
    if (ear_ >= 0) ::close(ear_);
    ear_ = -1;
    return 0;
  }
  if (ear_ >= 0) return 0;
  ear_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const address here = address_of(slot_);
  if (ear_ >= 0 && ::bind(ear_, reinterpret_cast<const sockaddr*>(&here.name), here.length) == 0)
    return 0;
  const int error = errno;
  hear_multicasts(false);
  return error;
}

const std::vector<std::uint32_t>& wire::hearers() {
  if (hearers_known_) return hearers_;
  hearers_.clear();
  const int probe = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return hearers_;
  // Nothing arrives there by this: connecting is the cheapest way to ask for a name.
  for (std::uint32_t slot = 1; slot <= last_slot; ++slot) {
    const address there = address_of(slot);
    if (::connect(probe, reinterpret_cast<const sockaddr*>(&there.name), there.length) == 0)
      hearers_.push_back(slot << index_bits);
  }
  ::close(probe);
  hearers_known_ = true;
  return hearers_;
}

void wire::block(std::uint32_t slot, outlet& way) noexcept {
  epoll_event event{};
  event.events = EPOLLOUT | EPOLLONESHOT;
  event.data.u64 = outlet_tag | slot;
  const int operation = way.watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (::epoll_ctl(epoll_, operation, way.socket, &event) != 0) return;
  way.watched = true;
  way.blocked = true;
  ++blocked_;
}

void wire::unblock(std::uint32_t slot) noexcept {
  outlet& way = *outlets_[slot];
  if (!way.blocked) return;
  way.blocked = false;
  --blocked_;
  while (!way.owed.empty()) {
    const sent result = try_send(way, way.owed.front(), nullptr, 0);
    if (result == sent::blocked) return block(slot, way);
    way.owed.pop_front();
    if (result == sent::lost) {
      way.disconnect();
      way.owed.clear();
    }
  }
  for (auto& waiting : way.waiting) {
    writable_again_.insert(writable_again_.end(), waiting.begin(), waiting.end());
    waiting.clear();
  }
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

bool wire::lags_behind(std::uint32_t target_qpn) const noexcept {
  const std::uint32_t slot = target_qpn >> index_bits;
  if (!is_open() || slot >= slots || !outlets_[slot] || outlets_[slot]->socket < 0) return false;
  int unread = 0;
  pollfd peer{outlets_[slot]->socket, 0, 0};
  if (::poll(&peer, 1, 0) != 0) return false;  // only a closed connection shows up
  return ::ioctl(outlets_[slot]->socket, SIOCOUTQ, &unread) == 0 && unread > 0;
}

}  // namespace softverbs
