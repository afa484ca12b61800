// SPDX-License-Identifier: Apache-2.0
#include "wire/wire.hpp"

#include "base/as_a_device.hpp"
#include "base/user_memory.hpp"
#include "wire/network_header.hpp"
#include "wire/strangers.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
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
#include <optional>
#include <span>
#include <utility>

namespace softverbs {
namespace {

/// More than there are slots can only be somebody playing tricks.
constexpr std::size_t most_inlets = 2 * wire::slots;

/// One connection is all that a process needs; while it opens a new one, the end of the one before
/// may not have been noticed.
constexpr std::ptrdiff_t most_inlets_of_one = 4;

/// Who opens connection after connection must not hold up those who are there: accepting and
/// closing one takes as long as some messages do, and wakes who opens the next one. All processes
/// that there can be are accepted within a tenth of a second even so.
constexpr unsigned accepted_at_once = 4;
constexpr unsigned accepted_in_a_row = 16;
constexpr nanoseconds between_rows = 1'000'000;

/// How long to wait for what another one has to give back first: a descriptor, say.
constexpr nanoseconds before_next_try = 20'000'000;

/// The same for a place among those who wait for a peer to accept their connections, which somebody
/// else may be quicker to take.
constexpr nanoseconds before_next_knock = 500'000;

/// Packets that are taken from one peer before the next one's turn.
constexpr unsigned packets_in_a_row = 16;

/// The same for notices, of which there is hardly ever more than one.
constexpr unsigned notices_in_a_row = 4;

/// How many polls with nothing but one quiet peer go by between two looks at
/// everything else.
constexpr unsigned looks_between = 8;

/// The same if there is nothing but rings: what else may come is less urgent.
constexpr unsigned looks_between_notices = 32;

void tell_of_descriptors() noexcept {
  // Under the engine's lock, as all that happens here.
  static bool told = false;
  if (std::exchange(told, true)) return;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  std::fprintf(stderr,
               "softverbs: this process has all the descriptors that it may have (RLIMIT_NOFILE is "
               "%llu), and softverbs needs two for each process that it exchanges messages with: "
               "connections wait until some are closed\n",
               static_cast<unsigned long long>(limit.rlim_cur));
}

/// Whether it can be different a little later.
bool may_pass(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
         error == EAGAIN;
}

/// How many looks into a ring in vain go by before it isn't looked into any more.
constexpr unsigned looks_in_vain = 1024;

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
                                   "%s/%u", own_kind(), slot);
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
  pid_t process = 0;  ///< that it led to, also if it is gone; 0 if there was none, or unknown
  bool blocked = false;
  bool short_of_means = false;          ///< to connect: that is tried again
  std::shared_ptr<remote_process> end;  ///< null without a greeting
  bool answered = false;
  std::optional<ring_writer> ring;
  std::array<std::vector<std::uint32_t>, 3> waiting;  ///< by enum turn
  std::deque<packet_header> owed;

  outlet() = default;
  outlet(const outlet&) = delete;
  outlet& operator=(const outlet&) = delete;
  ~outlet() { disconnect(); }
  void disconnect() noexcept {
    if (socket >= 0) ::close(socket);
    socket = -1;
    answered = false;
    ring.reset();
    if (end) end->gone = true;
    end.reset();
  }
};

struct wire::inlet {
  explicit inlet(int connected) noexcept : socket(connected), process(process_behind(connected)) {}
  inlet(const inlet&) = delete;
  inlet& operator=(const inlet&) = delete;
  ~inlet() {
    ::close(socket);
    if (end) end->gone = true;
  }

  int socket;
  pid_t process;           ///< 0 if it can't be told
  std::uint32_t slot = 0;  ///< of that process, once it is known
  bool heard = false;
  std::optional<ring_reader> ring;
  unsigned in_vain = 0;  ///< looks into the ring
  bool watched = false;
  bool ended = false;                   ///< and may have left something in the ring
  std::shared_ptr<remote_process> end;  ///< null without a greeting
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
  std::fprintf(stderr,
               "softverbs: %u processes of this host use softverbs, which are all that can: the "
               "device can't be opened before one of them has ended\n",
               last_slot);
  return EUSERS;
}

int wire::open() {
  outlets_.resize(slots);
  landing_ = std::make_unique_for_overwrite<std::byte[]>(largest_packet);
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

void wire::part() noexcept {
  for (const auto& way : outlets_)
    if (way && way->end) way->end->gone = true;
}

void wire::close() noexcept {
  for (const auto& way : outlets_) {
    // A peer that gets no answer to what it sent before we left would have to take
    // us for dead.
    while (way && !way->owed.empty() && way->socket >= 0) {
      const sent result = try_send(*way, way->owed.front(), nullptr, 0);
      if (result == sent::blocked && wait_until_writable(*way)) continue;
      if (result != sent::yes) break;
      way->owed.pop_front();
    }
  }
  outlets_.clear();
  inlets_.clear();
  ready_.clear();
  watched_.clear();
  by_socket_ = 0;
  writable_again_.clear();
  blocked_ = 0;
  full_rings_.clear();
  short_of_means_.clear();
  listener_pauses_until_ = 0;
  next_connect_ = 0;
  if (listener_ >= 0) ::close(listener_);
  if (epoll_ >= 0) ::close(epoll_);
  hear_multicasts(false);
  listener_ = -1;
  epoll_ = -1;
  current_in_ = nullptr;
  landing_.reset();
}

bool wire::wait_until_writable(outlet& way) noexcept {
  constexpr int patience = 100;  // milliseconds
  pollfd end{way.socket, static_cast<short>(way.ring ? POLLIN : POLLOUT), 0};
  if (::poll(&end, 1, patience) != 1) return false;
  if (!way.ring) return true;
  std::array<std::byte, sizeof(notice)> message;
  return ::recv(way.socket, message.data(), message.size(), MSG_DONTWAIT) > 0;
}

void wire::abandon() noexcept {
  for (const auto& way : outlets_)
    if (way) way->owed.clear();
  close();
}

void wire::accept_some() noexcept {
  if (const nanoseconds time = now(); time >= row_start_ + between_rows) {
    row_start_ = time;
    accepted_ = 0;
  }
  for (unsigned count = 0; count < accepted_at_once; ++count) {
    if (accepted_ == accepted_in_a_row) return pause_listener(row_start_ + between_rows);
    const int connected = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connected < 0) {
      if (errno == EMFILE) tell_of_descriptors();
      // Those who wait are there as long as this end is; looking at them all the time helps nobody.
      if (errno != EAGAIN && may_pass(errno)) pause_listener(now() + before_next_try);
      return;
    }
    ++accepted_;
    auto added = std::make_unique<inlet>(connected);
    make_room_for(*added);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = added.get();
    if (inlets_.size() >= most_inlets || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connected, &event) != 0)
      continue;
    inlets_.push_back(std::move(added));
    ++by_socket_;
  }
}

void wire::make_room_for(const inlet& added) noexcept {
  const auto first = [this](const auto& suits) {
    const auto found =
        std::ranges::find_if(inlets_, [&](const auto& each) { return suits(*each); });
    return found == inlets_.end() ? nullptr : found->get();
  };
  const auto is_of_same = [&](const inlet& each) {
    return added.process != 0 && each.process == added.process;
  };
  const auto of_same =
      std::ranges::count_if(inlets_, [&](const auto& each) { return is_of_same(*each); });
  inlet* gives_way = nullptr;
  if (of_same >= most_inlets_of_one) {
    gives_way = first([&](const inlet& each) { return is_of_same(each) && !each.end; });
    if (gives_way == nullptr) gives_way = first(is_of_same);
  } else if (inlets_.size() >= most_inlets) {
    gives_way = first([](const inlet& each) { return !each.heard; });
  }
  if (gives_way != nullptr) close_inlet(*gives_way);
}

void wire::watch_listener(std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = listener_tag;
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &event);
}

void wire::pause_listener(nanoseconds until) noexcept {
  watch_listener(0);
  listener_pauses_until_ = until;
}

nanoseconds wire::next_try() const noexcept {
  if (next_connect_ == 0 || listener_pauses_until_ == 0)
    return std::max(next_connect_, listener_pauses_until_);
  return std::min(next_connect_, listener_pauses_until_);
}

void wire::try_again() noexcept {
  if (next_try() == 0) return;
  const nanoseconds time = now();
  if (listener_pauses_until_ != 0 && time >= listener_pauses_until_) {
    listener_pauses_until_ = 0;
    watch_listener(EPOLLIN);
  }
  if (next_connect_ == 0 || time < next_connect_) return;
  next_connect_ = 0;
  std::vector<std::uint32_t> waiting;
  waiting.swap(short_of_means_);
  for (const std::uint32_t slot : waiting) {
    outlet& way = *outlets_[slot];
    // Those who wait stay with it, as long as it doesn't work: nobody takes the peer for gone.
    way.short_of_means = false;
    if (way.socket < 0 && !connect(slot, way) && way.short_of_means) continue;
    way.short_of_means = true;
    unblock(slot);
  }
}

void wire::close_inlet(inlet& from) noexcept {
  // Closing does not take it off while a child, between fork and exec, has the socket as well: it
  // would be reported again, with a pointer to what is gone.
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, from.socket, nullptr);
  if (current_in_ == &from) current_in_ = nullptr;
  std::erase(ready_, &from);
  std::erase(watched_, &from);
  if (!from.ring) --by_socket_;
  std::erase_if(inlets_, [&](const auto& each) { return each.get() == &from; });
}

void wire::make_ready(inlet& from) noexcept {
  if (std::exchange(from.ready, true)) return;
  ready_.push_back(&from);
}

void wire::watch(inlet& from) noexcept {
  from.in_vain = 0;
  if (std::exchange(from.watched, true)) return;
  watched_.push_back(&from);
}

void wire::look_into_rings() noexcept {
  std::erase_if(watched_, [this](inlet* from) {
    if (from->ready) return false;
    if (!from->ring->is_empty()) {
      from->in_vain = 0;
      make_ready(*from);
      return false;
    }
    if (++from->in_vain < looks_in_vain || !from->ring->sleep()) return false;
    from->watched = false;
    return true;
  });
  if (full_rings_.empty()) return;
  std::vector<std::uint32_t> full;
  full.swap(full_rings_);
  for (const std::uint32_t slot : full) {
    outlet& way = *outlets_[slot];
    if (!way.blocked || !way.ring) continue;
    if (way.ring->has_room())
      unblock(slot);
    else
      full_rings_.push_back(slot);
  }
}

bool wire::sleep() noexcept {
  if (!ready_.empty()) return false;
  std::erase_if(watched_, [](inlet* from) {
    if (!from->ring->sleep()) return false;
    from->watched = false;
    return true;
  });
  return watched_.empty();
}

bool wire::has_arrived() const noexcept {
  if (!is_open()) return false;
  for (const inlet* from : watched_)
    if (!from->ring->is_empty()) return true;
  // What isn't taken from it is told again.
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  return std::any_of(
      events.data(), events.data() + std::max(count, 0), [](const epoll_event& each) {
        if (each.data.u64 == listener_tag) return false;
        return (each.data.u64 & outlet_tag) != 0 || static_cast<const inlet*>(each.data.ptr)->heard;
      });
}

void wire::look(bool thoroughly) noexcept {
  hearers_known_ = false;
  look_into_rings();
  const bool one_socket = by_socket_ == 1 && inlets_.size() == 1 && blocked_ == 0;
  const bool nothing_but_rings = by_socket_ == 0 && blocked_ == 0;
  // Where there are rings as well, sockets must not slow them down, whoever they belong to.
  const bool may_wait = one_socket || nothing_but_rings || !watched_.empty();
  if (!thoroughly && may_wait &&
      ++looks_ % (nothing_but_rings ? looks_between_notices : looks_between) != 0) {
    if (one_socket) make_ready(*inlets_.front());
    return;
  }
  try_again();
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
  bool knocked = false;
  for (int at = 0; at < count; ++at) {
    const epoll_event& event = events[static_cast<std::size_t>(at)];
    if (event.data.u64 == listener_tag) {
      knocked = true;
    } else if ((event.data.u64 & outlet_tag) != 0) {
      const auto slot = static_cast<std::uint32_t>(event.data.u64 & ~outlet_tag);
      if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0) hear_back(slot);
      if ((event.events & EPOLLOUT) != 0) unblock(slot);
    } else if (auto* from = static_cast<inlet*>(event.data.ptr); from->ring) {
      hear(*from);
    } else {
      make_ready(*from);
    }
  }
  if (knocked) accept_some();
}

const packet* wire::next() {
  release();
  while (!ready_.empty()) {
    if (turn_ >= ready_.size()) turn_ = 0;
    inlet& from = *ready_[turn_];
    if (from.in_a_row++ >= packets_in_a_row) {
      from.in_a_row = 0;
      ++turn_;
      continue;
    }
    bool open = true;
    const std::span<const std::byte> message = take(from, open);
    if (message.empty() && open) {
      from.ready = false;
      from.in_a_row = 0;
      ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(turn_));
      if (from.ended) close_inlet(from);
      continue;
    }
    if (message.empty() || !well_formed(message)) {
      close_inlet(from);
      continue;
    }
    // Lost; who it pretends to be goes on.
    if (!speaks_for(from, current_.header.source_qpn)) continue;
    return &current_;
  }
  return nullptr;
}

std::span<const std::byte> wire::take(inlet& from, bool& open) noexcept {
  // What has to do with the connection may come before a packet.
  while (!from.ring) {
    // Descriptors come with the first message only.
    descriptors attached;
    const ssize_t received =
        from.heard ? ::recv(from.socket, landing_.get(), largest_packet, MSG_DONTWAIT | MSG_TRUNC)
                   : attached.receive(from.socket, landing_.get(), largest_packet);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    // Says, once, that who left had not read all; what he said before is still to come.
    if (received < 0 && errno == ECONNRESET) continue;
    open = received > 0;
    if (!open) return {};
    const auto length = static_cast<std::size_t>(received);
    const auto told = read_notice(landing_.get(), length);
    if (told && !heed(from, *told, attached.first())) {
      open = false;
      return {};
    }
    from.heard = true;
    if (!told) return {landing_.get(), length};
  }
  const std::span<const std::byte> message = from.ring->next(open);
  if (!message.empty()) current_in_ = &from;
  return message;
}

void wire::release() noexcept {
  inlet* from = std::exchange(current_in_, nullptr);
  if (from != nullptr && from->ring->release())
    send_notice(from->socket, notice::kind::room_to_write);
}

bool wire::heed(inlet& from, const notice& told, int descriptor) noexcept {
  switch (told.what) {
    case notice::kind::greeting:
      if (from.heard) return false;
      answer(from, descriptor);
      return true;
    case notice::kind::changed_to_ring:
      if (!from.end) return false;
      from.ring.emplace(from.end->ring());
      --by_socket_;
      watch(from);
      return true;
    default:
      return false;
  }
}

void wire::hear(inlet& from) noexcept {
  std::array<std::byte, sizeof(notice)> message;
  const ssize_t received =
      ::recv(from.socket, message.data(), message.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (received <= 0) {
    // What it wrote before still counts.
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, from.socket, nullptr);
    from.ring->end();
    from.ended = true;
  } else {
    const auto told = read_notice(message.data(), static_cast<std::size_t>(received));
    if (!told || told->what != notice::kind::something_to_read) return close_inlet(from);
    watch(from);
  }
  make_ready(from);
}

void wire::answer(inlet& from, int descriptor) noexcept {
  notice answer{};
  answer.what = notice::kind::answer;
  auto end = std::make_shared<remote_process>();
  if (is_of_same_user(from.socket) && end->pair.map(descriptor, pair_memory::bytes, true) == 0) {
    end->process = process_behind(from.socket);
    from.end = std::move(end);
    answer.accepted = 1;
  }
  // Who is gone by now doesn't need it, but what he said before he left counts.
  send_notice(from.socket, answer, from.end ? published_ : nothing_attached);
}

bool wire::well_formed(std::span<const std::byte> message) noexcept {
  if (message.size() < sizeof(packet_header) || message.size() > largest_packet) return false;
  packet_header& header = current_.header;
  // Copied before anything is looked at: its sender may share the memory.
  std::memcpy(&header, message.data(), sizeof(header));
  current_.payload = message.data() + sizeof(header);
  if (header.payload != message.size() - sizeof(header)) return false;
  if (header.psn > psn_mask) return false;
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

bool wire::belongs_to(std::uint32_t qpn, pid_t process) {
  const std::uint32_t slot = qpn >> index_bits;
  // In another namespace, it has no number here.
  if (process == 0) return true;
  if (slot == slot_) return process == ::getpid();
  if (!is_open() || slot == 0 || slot > last_slot) return false;
  const outlet* const way = outlets_[slot].get();
  const pid_t known = way == nullptr ? 0 : way->process;
  if (known == process) return true;
  // The slot may have somebody else by now. The kernel tells who listens to who connects.
  const int probe = open_socket();
  // For want of descriptors, nobody is shut out.
  if (probe < 0) return true;
  const address there = address_of(slot);
  const bool found =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&there.name), there.length) == 0;
  const int error = errno;
  const pid_t listens = found ? process_behind(probe) : 0;
  ::close(probe);
  if (found) return listens == 0 || listens == process;
  // So many wait to be accepted there that it can't be told now. A place among them is waited for,
  // so that it is known who that is when it says the same again.
  if (error == EAGAIN) static_cast<void>(find(qpn));
  // Nobody is left there whom this could be a lie about; what was said before still counts.
  return error == ECONNREFUSED && known == 0;
}

bool wire::speaks_for(inlet& from, std::uint32_t qpn) {
  if (from.slot == qpn >> index_bits) return true;
  if (!belongs_to(qpn, from.process)) return false;
  from.slot = qpn >> index_bits;
  return true;
}

bool wire::connect(std::uint32_t slot, outlet& way) noexcept {
  way.socket = open_socket();
  if (way.socket < 0) {
    if (errno == EMFILE) tell_of_descriptors();
    if (may_pass(errno)) wait_for_means(slot, way, before_next_try);
    return false;
  }
  const address there = address_of(slot);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = outlet_tag | slot;
  // Watched for its end, too: a peer that is gone keeps no descriptor here.
  if (::connect(way.socket, reinterpret_cast<const sockaddr*>(&there.name), there.length) != 0 ||
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, way.socket, &event) != 0) {
    const int error = errno;
    way.disconnect();
    if (may_pass(error))
      wait_for_means(slot, way, error == EAGAIN ? before_next_knock : before_next_try);
    else
      tell_of_stranger(slot);
    return false;
  }
  way.process = process_behind(way.socket);
  greet(way);
  return true;
}

void wire::wait_for_means(std::uint32_t slot, outlet& way, nanoseconds how_long) noexcept {
  way.short_of_means = way.blocked = true;
  short_of_means_.push_back(slot);
  const nanoseconds next = now() + how_long;
  if (next_connect_ == 0 || next < next_connect_) next_connect_ = next;
}

void wire::greet(outlet& way) noexcept {
  if (!configured().shares_memory || !is_of_same_user(way.socket)) return;
  auto end = std::make_shared<remote_process>();
  if (end->pair.create(pair_memory::bytes, shared_memory::others::write) != 0) return;
  notice greeting{};
  greeting.what = notice::kind::greeting;
  const bool sent = send_notice(way.socket, greeting, {end->pair.descriptor(), -1});
  // Who has it by now keeps it.
  end->pair.close_descriptor();
  if (!sent) return;
  end->process = way.process;
  way.end = std::move(end);
}

void wire::hear_back(std::uint32_t slot) noexcept {
  outlet& way = *outlets_[slot];
  // Who never stops to say something must not keep all others waiting.
  for (unsigned heard = 0; way.socket >= 0 && heard < notices_in_a_row; ++heard) {
    std::array<std::byte, sizeof(notice)> message;
    descriptors attached;
    const ssize_t received =
        way.answered ? ::recv(way.socket, message.data(), message.size(), MSG_DONTWAIT | MSG_TRUNC)
                     : attached.receive(way.socket, message.data(), message.size());
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const auto told =
        read_notice(message.data(), static_cast<std::size_t>(std::max<ssize_t>(received, 0)));
    if (told && told->what == notice::kind::room_to_write && way.ring) {
      unblock(slot);
      continue;
    }
    if (!told || told->what != notice::kind::answer || way.answered || !way.end) return lose(slot);
    way.answered = true;
    if (told->accepted == 0 ||
        (attached.first() >= 0 && way.end->tables.map(attached.first(), 0, false) != 0))
      way.end.reset();
    // Without it, what is to be done there goes as packets.
    else if (attached.second() >= 0)
      way.end->device_memory.map(attached.second(), device_memory_bytes, true);
  }
}

void wire::lose(std::uint32_t slot) noexcept {
  outlet& way = *outlets_[slot];
  // A child between fork and exec has the socket as well: closing alone would leave it watched.
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, way.socket, nullptr);
  way.disconnect();
  way.owed.clear();
  if (way.blocked) unblock(slot);
}

std::shared_ptr<const remote_process> wire::find(std::uint32_t target_qpn) {
  const std::uint32_t slot = target_qpn >> index_bits;
  if (!is_open() || slot == 0 || slot > last_slot) return nullptr;
  auto& way = outlets_[slot];
  if (!way) way = std::make_unique<outlet>();
  if (way->socket < 0 && !way->blocked) connect(slot, *way);
  return way->answered ? way->end : nullptr;
}

std::vector<std::shared_ptr<const remote_process>> wire::connected() const {
  std::vector<std::shared_ptr<const remote_process>> all;
  for (const auto& from : inlets_)
    if (from->end) all.push_back(from->end);
  return all;
}

sent wire::write(outlet& way, const packet_header& header, const iovec* payload, std::size_t pieces,
                 payload_of whose) noexcept {
  std::byte* to = way.ring->prepare(sizeof(header) + header.payload);
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
  // That a notice doesn't fit in the socket means that it holds others.
  if (way.ring->publish()) send_notice(way.socket, notice::kind::something_to_read);
  return sent::yes;
}

sent wire::try_send(outlet& way, const packet_header& header, const iovec* payload,
                    std::size_t pieces, payload_of whose) noexcept {
  if (way.answered && way.end && !way.ring &&
      send_notice(way.socket, notice::kind::changed_to_ring))
    way.ring.emplace(way.end->ring());
  if (way.ring) return write(way, header, payload, pieces, whose);
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
                std::size_t pieces, payload_of whose) {
  const std::uint32_t slot = target_qpn >> index_bits;
  if (!is_open() || slot == 0 || slot > last_slot) return sent::lost;
  auto& place = outlets_[slot];
  if (!place) place = std::make_unique<outlet>();
  outlet& way = *place;
  if (way.blocked) return sent::blocked;
  // The second try is for a connection to a process that died, if another one has
  // taken its slot meanwhile.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (way.socket < 0 && !connect(slot, way)) return way.blocked ? sent::blocked : sent::lost;
    const sent result = try_send(way, header, payload, pieces, whose);
    if (result == sent::blocked) block(slot, way);
    if (result != sent::lost) return result;
    lose(slot);
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
  if (!way.ring && !watch(slot, way, EPOLLIN | EPOLLOUT)) return;
  way.blocked = true;
  if (way.ring)
    full_rings_.push_back(slot);
  else
    ++blocked_;
}

bool wire::watch(std::uint32_t slot, outlet& way, std::uint32_t events) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = outlet_tag | slot;
  return ::epoll_ctl(epoll_, EPOLL_CTL_MOD, way.socket, &event) == 0;
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
  if (!is_open() || slot >= slots || !outlets_[slot]) return false;
  if (outlets_[slot]->short_of_means) return true;
  if (outlets_[slot]->socket < 0) return false;
  int unread = 0;
  pollfd peer{outlets_[slot]->socket, 0, 0};
  if (::poll(&peer, 1, 0) != 0) return false;  // only a closed connection shows up
  if (outlets_[slot]->ring && outlets_[slot]->ring->is_unread()) return true;
  return ::ioctl(outlets_[slot]->socket, SIOCOUTQ, &unread) == 0 && unread > 0;
}

}  // namespace softverbs
