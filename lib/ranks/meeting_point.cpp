// SPDX-License-Identifier: Apache-2.0
#include "ranks/meeting_point.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace verbspp::detail {

namespace {

using clock = std::chrono::steady_clock;

/// The time within which a client has to send its rank.
constexpr auto time_for_hello = std::chrono::seconds(10);
/// The maximum time for which rank 0 waits for the others to leave.
constexpr auto time_to_leave = std::chrono::seconds(5);
/// The maximum time between two checks of whether the thread has to end, in milliseconds.
constexpr int look_every_ms = 50;
/// The number of clients that have not sent their rank (strangers) may exceed the number of ranks
/// by this many. Beyond that, the next client waits until the oldest stranger has been connected
/// for `time_among_strangers`, and then replaces that stranger.
constexpr std::size_t more_strangers = 256;
constexpr auto time_among_strangers = std::chrono::milliseconds(500);
/// The maximum number of unsent bytes that are kept for a rank that does not read.
constexpr std::size_t most_unsent = std::size_t{64} << 20;

}  // namespace

meeting_point::meeting_point(tcp_listener listener, std::uint32_t size, std::string name)
    : listener_(std::move(listener)),
      name_(std::move(name)),
      values_(size),
      presence_(size, presence::not_yet) {
  thread_ = std::thread([this] {
    // If memory runs out, all connections are closed, which the ranks notice.
    static_cast<void>(without_exceptions("meeting point", [this]() -> result<void> {
      serve();
      return success();
    }));
    visitors_.clear();
    listener_.close();
  });
}

meeting_point::~meeting_point() {
  is_ending_ = true;
  thread_.join();
}

void meeting_point::serve() {
  std::optional<clock::time_point> end;
  for (;;) {
    if (is_ending_ && !end) end = clock::now() + time_to_leave;
    if (end && (clock::now() > *end || std::ranges::none_of(visitors_, [](const visitor& each) {
                  return each.rank.has_value();
                })))
      return;
    std::vector<pollfd> watched;
    watched.push_back({.fd = listener_.descriptor(),
                       .events = static_cast<short>(place_for_next() ? POLLIN : 0),
                       .revents = 0});
    for (const visitor& each : visitors_)
      watched.push_back({.fd = each.socket.descriptor(),
                         .events = static_cast<short>(each.out.empty() ? POLLIN : POLLIN | POLLOUT),
                         .revents = 0});
    if (::poll(watched.data(), watched.size(), look_every_ms) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < visitors_.size(); ++i) {
      visitor& each = visitors_[i];
      const short ready = watched[i + 1].revents;
      if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0) read(each);
      if (!each.rank && clock::now() - each.came > time_for_hello) each.is_gone = true;
    }
    if ((watched[0].revents & POLLIN) != 0) admit();
    look_at_fences();
    for (visitor& each : visitors_)
      if (!each.out.empty()) write(each);
    remove_gone();
  }
}

/// Returns the stranger that has to leave before another client may connect, or the end iterator if
/// there is room for the client. Returns nothing if the client has to wait.
std::optional<meeting_point::place> meeting_point::place_for_next() {
  // The visitors are in the order of their arrival.
  const auto is_stranger = [](const visitor& each) { return !each.rank && !each.is_gone; };
  if (static_cast<std::size_t>(std::ranges::count_if(visitors_, is_stranger)) <
      values_.size() + more_strangers)
    return visitors_.end();
  const auto oldest = std::ranges::find_if(visitors_, is_stranger);
  if (clock::now() - oldest->came < time_among_strangers) return std::nullopt;
  return oldest;
}

void meeting_point::admit() {
  while (const std::optional<place> leaving = place_for_next()) {
    auto accepted = listener_.try_accept();
    if (!accepted.has_value() || !accepted.assume_value()) return;
    if (*leaving != visitors_.end()) {
      refuse(**leaving, tcp_refusal::too_slow);
      write(**leaving);
      (*leaving)->is_gone = true;
    }
    visitor made;
    made.socket = *std::move(accepted).assume_value();
    made.came = clock::now();
    visitors_.push_back(std::move(made));
  }
}

void meeting_point::read(visitor& from) {
  std::array<std::byte, 65536> bytes;
  for (;;) {
    const ssize_t got = ::recv(from.socket.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      from.is_gone = true;
      break;
    }
    from.in.add(std::span(bytes).first(static_cast<std::size_t>(got)));
    while (!from.is_gone && !from.is_leaving) {
      const std::optional<tcp_frame> frame = from.in.next();
      if (!frame) break;
      take(from, *frame);
    }
    if (from.in.is_wrong() || (!from.rank && from.in.size() > largest_tcp_hello))
      from.is_gone = true;
    if (from.is_gone || static_cast<std::size_t>(got) < bytes.size()) break;
  }
}

void meeting_point::write(visitor& to) {
  std::size_t sent = 0;
  while (sent < to.out.size()) {
    const ssize_t now = ::send(to.socket.descriptor(), to.out.data() + sent, to.out.size() - sent,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0 && errno != EAGAIN && errno != EWOULDBLOCK) to.is_gone = true;
    if (now <= 0) break;
    sent += static_cast<std::size_t>(now);
  }
  to.out.erase(to.out.begin(), to.out.begin() + static_cast<std::ptrdiff_t>(sent));
  if ((to.out.empty() && to.is_leaving) || to.out.size() > most_unsent) to.is_gone = true;
}

void meeting_point::take(visitor& from, const tcp_frame& frame) {
  if (!from.rank) {
    if (frame.type == tcp_frame_type::hello)
      greet(from, frame);
    else
      from.is_gone = true;
    return;
  }
  const std::uint32_t rank = *from.rank;
  switch (frame.type) {
    case tcp_frame_type::put:
      values_.put(rank, frame.key, frame.value);
      return;
    case tcp_frame_type::fence:
      from.waits_at = values_.arrive(rank);
      return;
    case tcp_frame_type::get: {
      const auto* const value = values_.get(frame.number, frame.key);
      if (value != nullptr)
        append_frame(from.out, tcp_frame_type::value, frame.number, frame.key, *value);
      else
        append_frame(from.out, tcp_frame_type::no_value, frame.number, frame.key, {});
      return;
    }
    case tcp_frame_type::who: {
      const auto missing = values_.missing_at(values_.fences_of(rank));
      std::vector<std::byte> count;
      append_number(count, missing.count, 4);
      append_frame(from.out, tcp_frame_type::missing, missing.first, {}, count);
      return;
    }
    default:
      from.is_gone = true;
  }
}

void meeting_point::greet(visitor& from, const tcp_frame& hello) {
  if (hello.value.size() != 12 || number_at(hello.value, 0, 4) != tcp_magic) {
    from.is_gone = true;
    return;
  }
  if (number_at(hello.value, 4, 4) != tcp_version) return refuse(from, tcp_refusal::other_version);
  if (hello.key != name_) return refuse(from, tcp_refusal::other_world);
  if (number_at(hello.value, 8, 4) != values_.size()) return refuse(from, tcp_refusal::other_size);
  if (hello.number >= values_.size()) return refuse(from, tcp_refusal::no_rank);
  if (presence_[hello.number] != presence::not_yet) return refuse(from, tcp_refusal::doubled);
  presence_[hello.number] = presence::here;
  from.rank = hello.number;
  append_frame(from.out, tcp_frame_type::welcome, hello.number, {}, {});
}

void meeting_point::refuse(visitor& whom, tcp_refusal why) {
  append_frame(whom.out, tcp_frame_type::refused, static_cast<std::uint32_t>(why), {}, {});
  whom.is_leaving = true;
}

void meeting_point::look_at_fences() {
  for (visitor& each : visitors_) {
    if (each.waits_at == 0 || each.is_gone) continue;
    if (values_.all_at(each.waits_at)) {
      append_frame(each.out, tcp_frame_type::released, each.waits_at, {}, {});
      each.waits_at = 0;
      continue;
    }
    // Names the rank that left first, because the others may have left only because of it.
    const auto missing = std::ranges::find_if(
        left_, [&](std::uint32_t rank) { return values_.fences_of(rank) < each.waits_at; });
    if (missing == left_.end()) continue;
    append_frame(each.out, tcp_frame_type::left, *missing, {}, {});
    each.waits_at = 0;
  }
}

void meeting_point::remove_gone() {
  bool is_fewer = false;
  for (const visitor& each : visitors_) {
    if (!each.is_gone || !each.rank) continue;
    presence_[*each.rank] = presence::left;
    left_.push_back(*each.rank);
    is_fewer = true;
  }
  std::erase_if(visitors_, [](const visitor& each) { return each.is_gone; });
  if (is_fewer) look_at_fences();
}

}  // namespace verbspp::detail
