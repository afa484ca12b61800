// SPDX-License-Identifier: Apache-2.0
/// \file
/// Receives packets and notices over the connections that processes have opened to this one, and
/// polls the rings.
#include "device/environment.hpp"
#include "wire/ends.hpp"
#include "wire/network_header.hpp"
#include "wire/wire.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace softverbs {
namespace {

/// The maximum number of packets that are taken from one peer before those of the next peer.
constexpr unsigned packets_in_a_row = 16;

/// A ring is no longer polled after this number of successive polls that find it empty.
constexpr unsigned looks_in_vain = 1024;

}  // namespace

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
    // A packet is dropped if its source seems to belong to another process. The connection stays,
    // and the queue pair that the sender may have impersonated is not affected.
    if (!speaks_for(from, current_.header.source_qpn)) continue;
    return &current_;
  }
  return nullptr;
}

std::span<const std::byte> wire::take(inlet& from, bool& open) noexcept {
  // The peer may send notices before its first packet.
  while (!from.ring) {
    // Only the first message carries descriptors.
    descriptors attached;
    const ssize_t received =
        from.heard ? ::recv(from.socket, landing_.get(), largest_packet, MSG_DONTWAIT | MSG_TRUNC)
                   : attached.receive(from.socket, landing_.get(), largest_packet);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return {};
    // The peer closed the connection without reading everything. This error is reported once, and
    // messages that arrived before can still be received.
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
    // Packets that the peer wrote before it disconnected are still processed.
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
  if (configured().shares_memory && is_of_same_user(from.socket) &&
      end->pair.map(descriptor, pair_memory::bytes, true) == 0) {
    end->process = process_behind(from.socket);
    from.end = std::move(end);
    answer.accepted = 1;
  }
  // If the peer has exited by now, this fails without harm. Packets that it sent before are still
  // processed.
  send_notice(from.socket, answer, from.end ? published_ : nothing_attached);
}

bool wire::well_formed(std::span<const std::byte> message) noexcept {
  if (message.size() < sizeof(packet_header) || message.size() > largest_packet) return false;
  packet_header& header = current_.header;
  // The header is copied before it is checked, because the sender may share the memory and change
  // it.
  std::memcpy(&header, message.data(), sizeof(header));
  current_.payload = message.data() + sizeof(header);
  if (carried_bytes(header) != message.size() - sizeof(header)) return false;
  if (header.psn > psn_mask) return false;
  if (header.source_key != 0)
    return header.kind == packet_kind::write && header.payload != 0 &&
           header.payload <= pulled_bytes;
  switch (header.kind) {
    case packet_kind::send:
    case packet_kind::write:
    case packet_kind::read_response:
      return true;
    case packet_kind::datagram:
      return header.payload >= sizeof(network_header) &&
             header.payload <= sizeof(network_header) + limits::datagram_bytes;
    case packet_kind::frame:
      return header.payload >= ethernet_header_bytes && header.payload <= limits::frame_bytes;
    case packet_kind::read_request:
    case packet_kind::acknowledge:
      return header.payload == 0;
    case packet_kind::refuse:
      return header.payload == 0 && header.reason >= refusal::sequence &&
             header.reason <= refusal::not_pulled && header.rnr_timer < 32;
    default:
      return carries_operands(header.kind) && header.payload == sizeof(atomic_operands);
  }
}

bool wire::speaks_for(inlet& from, std::uint32_t qpn) {
  if (from.slot == qpn >> index_bits) return true;
  if (!belongs_to(qpn, from.process)) return false;
  from.slot = qpn >> index_bits;
  return true;
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

void wire::close_inlet(inlet& from) noexcept {
  // Closing the socket would not remove it from epoll while a child, between fork and exec, also
  // has it. epoll would then report it again, with a dangling pointer.
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, from.socket, nullptr);
  if (current_in_ == &from) current_in_ = nullptr;
  std::erase(ready_, &from);
  std::erase(watched_, &from);
  if (!from.ring) --by_socket_;
  std::erase_if(inlets_, [&](const auto& each) { return each.get() == &from; });
}

std::vector<std::shared_ptr<const remote_process>> wire::connected() const {
  std::vector<std::shared_ptr<const remote_process>> all;
  for (const auto& from : inlets_)
    if (from->end) all.push_back(from->end);
  return all;
}

}  // namespace softverbs
