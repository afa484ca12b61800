// SPDX-License-Identifier: Apache-2.0
/// \file
/// Opens connections to slots, retries if resources are lacking, and reads the notices that come
/// back. Also identifies the process that has a slot.
#include "device/environment.hpp"
#include "wire/ends.hpp"
#include "wire/slot_socket.hpp"
#include "wire/strangers.hpp"
#include "wire/wire.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace softverbs {
namespace {

/// The delay before a retry when the peer's backlog of pending connections is full. It is short,
/// because other processes compete for a place in the backlog.
constexpr nanoseconds before_next_knock = 500'000;

/// The maximum number of notices that are read from one peer before those of the next peer. There
/// is rarely more than one notice.
constexpr unsigned notices_in_a_row = 4;

}  // namespace

bool wire::connect(std::uint32_t slot, outlet& way) noexcept {
  way.socket = open_socket();
  if (way.socket < 0) {
    if (errno == EMFILE) tell_of_descriptors();
    if (may_pass(errno)) wait_for_means(slot, way, before_next_try);
    return false;
  }
  const slot_name there(slot);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = outlet_tag | slot;
  // The socket is also watched for the end of the connection: when the peer exits, this process
  // closes the socket, so that its descriptor is free.
  if (::connect(way.socket, there.get(), there.length) != 0 ||
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
    // If connecting still fails for lack of resources, the queue pairs that wait for this peer keep
    // waiting, because they must not consider it dead.
    way.short_of_means = false;
    if (way.socket < 0 && !connect(slot, way) && way.short_of_means) continue;
    way.short_of_means = true;
    unblock(slot);
  }
}

void wire::greet(outlet& way) noexcept {
  if (!configured().shares_memory || !is_of_same_user(way.socket)) return;
  auto end = std::make_shared<remote_process>();
  if (end->pair.create(pair_memory::bytes, shared_memory::others::write) != 0) return;
  notice greeting{};
  greeting.what = notice::kind::greeting;
  const bool sent = send_notice(way.socket, greeting, {end->pair.descriptor(), -1});
  // A message that was sent holds a reference of its own to the memory.
  end->pair.close_descriptor();
  if (!sent) return;
  end->process = way.process;
  way.end = std::move(end);
}

void wire::hear_back(std::uint32_t slot) noexcept {
  outlet& way = *outlets_[slot];
  // A peer that sends continuously must not delay the others.
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
    // If mapping the device memory fails, operations on it use packets.
    else if (attached.second() >= 0)
      way.end->device_memory.map(attached.second(), device_memory_bytes, true);
  }
}

void wire::lose(std::uint32_t slot) noexcept {
  outlet& way = *outlets_[slot];
  // Closing the socket would not remove it from epoll while a child, between fork and exec, also
  // has it.
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

bool wire::belongs_to(std::uint32_t qpn, pid_t process) {
  const std::uint32_t slot = qpn >> index_bits;
  // A process in another namespace has no process ID here.
  if (process == 0) return true;
  if (slot == slot_) return process == ::getpid();
  if (!is_open() || slot == 0 || slot > last_slot) return false;
  const outlet* const way = outlets_[slot].get();
  const pid_t known = way == nullptr ? 0 : way->process;
  if (known == process) return true;
  // Another process may have the slot by now. When a process connects, the kernel reports which
  // process called listen.
  const int probe = open_socket();
  // Without a socket, this can't be checked, so the claim is believed.
  if (probe < 0) return true;
  const slot_name there(slot);
  const bool found = ::connect(probe, there.get(), there.length) == 0;
  const int error = errno;
  const pid_t listens = found ? process_behind(probe) : 0;
  ::close(probe);
  if (found) return listens == 0 || listens == process;
  // The backlog is full, so the process can't be identified now. Connecting starts here, so that
  // a later call can identify the process, for example when the peer sends its packet again.
  if (error == EAGAIN) static_cast<void>(find(qpn));
  // If the slot is free, there is no other process that the sender could impersonate. The sender
  // may have exited; the packets that it sent before are still valid.
  return error == ECONNREFUSED && known == 0;
}

}  // namespace softverbs
