// SPDX-License-Identifier: Apache-2.0
#include "ranks/environment.hpp"
#include "ranks/meeting_point.hpp"
#include "ranks/tcp_frame.hpp"
#include "ranks/values_of_ranks.hpp"
#include <verbspp/base/detail/wait_readable.hpp>
#include <verbspp/base/detail/words.hpp>
#include <verbspp/exchange/tcp.hpp>
#include <verbspp/ranks/tcp_bootstrap.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace verbspp {

namespace {

using detail::tcp_frame;
using detail::tcp_frame_type;

constexpr const char* meeting = "meet the ranks of a world";
/// The interval between attempts to connect before the meeting point exists.
constexpr auto time_between_attempts = std::chrono::milliseconds(20);
/// The time within which the meeting point has to name the missing ranks.
constexpr auto time_for_who = std::chrono::seconds(1);

[[nodiscard]] error gone() noexcept {
  return {error_kind::not_connected, meeting,
          "the connection to the meeting point is broken: rank 0 has ended it (see the output of "
          "its process), the network has failed, another program uses the port, or an earlier call "
          "reached its limit while it was sending"};
}

[[nodiscard]] error refusal(std::uint32_t why, const tcp_launch& launch) noexcept {
  switch (static_cast<detail::tcp_refusal>(why)) {
    case detail::tcp_refusal::no_rank:
      return error::out_of_range(meeting, "rank", launch.rank,
                                 "the meeting point's world has no such rank: number the ranks "
                                 "from 0 to the size of the world - 1");
    case detail::tcp_refusal::doubled:
      return detail::error_in_words_of(
          error_kind::busy, meeting,
          "rank %u has already joined at the meeting point: was this rank started twice, did it "
          "join twice, or does another world use this meeting point?",
          launch.rank);
    case detail::tcp_refusal::other_size:
      return detail::error_in_words_of(
          error_kind::mismatch, meeting,
          "this rank was started with the world size %u, but the meeting point serves a world of "
          "another size: start all ranks of a world with the same size, and give each world its "
          "own meeting point",
          launch.size);
    case detail::tcp_refusal::other_world:
      return {error_kind::mismatch, meeting,
              "the meeting point serves a world with a different name: start all ranks of a world "
              "with the same world name and the same kind of bootstrap, and give each world its "
              "own meeting point"};
    case detail::tcp_refusal::too_slow:
      return {error_kind::busy, meeting,
              "too many other clients connected to the meeting point before the calling rank "
              "identified itself: join again with a longer time limit"};
    case detail::tcp_refusal::other_version:
      break;
  }
  return {
      error_kind::mismatch, meeting,
      "rank 0 uses another version of the protocol: use the same version of verbspp on all ranks"};
}

struct host_and_port {
  std::string_view host;
  std::string_view port;
};

[[nodiscard]] result<host_and_port> split(std::string_view place) noexcept {
  const std::size_t colon = place.rfind(':');
  if (colon != std::string_view::npos && colon != 0 && colon + 1 != place.size()) {
    std::string_view host = place.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
      host = host.substr(1, host.size() - 2);
    else if (host.find(':') != std::string_view::npos)
      host = {};
    if (!host.empty()) return host_and_port{host, place.substr(colon + 1)};
  }
  return error(
      error_kind::invalid_input, meeting,
      "a meeting point is a host and a port, as in \"node17:4711\"; an IPv6 address must be "
      "in brackets, as in \"[::1]:4711\"");
}

}  // namespace

namespace detail {

/// One rank's connection to the meeting point. At rank 0, this is also the meeting point itself.
class [[gnu::visibility("hidden")]] tcp_rank {
 public:
  explicit tcp_rank(const tcp_launch& launch) noexcept : launch_(launch) {}

  [[nodiscard]] std::uint32_t rank() const noexcept { return launch_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept { return launch_.size; }

  [[nodiscard]] result<void> join(const wait_limit& limit) {
    VERBSPP_TRY(place, split(launch_.meeting_point));
    if (launch_.rank == 0) {
      auto listener = tcp_listener::open(place.port);
      if (!listener.has_value()) {
        const error& cause = listener.assume_error();
        if (cause.native_errno() != EADDRINUSE) return cause;
        return error::from_errno(EADDRINUSE, meeting)
            .as(error_kind::busy,
                "the port of the meeting point is in use: was rank 0 started twice, or does "
                "another world or program use the port?");
      }
      point_ = std::make_unique<meeting_point>(std::move(listener).assume_value(), launch_.size,
                                               std::string(launch_.name));
    }
    std::vector<std::byte> hello;
    append_number(hello, tcp_magic, 4);
    append_number(hello, tcp_version, 4);
    append_number(hello, launch_.size, 4);
    for (;;) {
      VERBSPP_TRYV(connect(place, limit));
      VERBSPP_TRYV(send(tcp_frame_type::hello, launch_.rank, launch_.name, hello, limit));
      VERBSPP_TRY(answer, receive(limit));
      if (answer.type == tcp_frame_type::welcome) break;
      if (answer.type != tcp_frame_type::refused) return gone();
      // Only `too_slow` is worth another attempt: this rank sent its number too late, and the
      // meeting point gave this rank's place to another client.
      if (static_cast<tcp_refusal>(answer.number) != tcp_refusal::too_slow || limit.has_passed())
        return refusal(answer.number, launch_);
    }
    // The caller owns the strings, and may destroy them after this call.
    launch_.meeting_point = {};
    launch_.name = {};
    return success();
  }

  [[nodiscard]] result<void> put(std::string_view key, std::span<const std::byte> value) {
    if (key.size() > longest_tcp_key)
      return error::above_limit("put a value", "bytes of the key", key.size(), longest_tcp_key);
    if (value.size() > largest_tcp_value)
      return error::above_limit("put a value", "bytes", value.size(), largest_tcp_value);
    return send(tcp_frame_type::put, 0, key, value, wait_limit(std::chrono::seconds(30)));
  }

  [[nodiscard]] group_result<void> fence(const wait_limit& limit) {
    // Also sends the earlier fences that could not be sent within their limits. Otherwise, the
    // meeting point would count fewer fences for this rank than for the others.
    for (++fences_; fences_sent_ < fences_; ++fences_sent_)
      VERBSPP_TRYV(send(tcp_frame_type::fence, 0, {}, {}, limit));
    for (;;) {
      const auto answer = receive(limit);
      if (!answer.has_value()) {
        if (!limit.has_passed()) return answer.assume_error();
        return who_is_missing(limit);
      }
      if (answer.assume_value().type == tcp_frame_type::released &&
          answer.assume_value().number >= fences_)
        return success();
      if (answer.assume_value().type == tcp_frame_type::left)
        return group_error(answer.assume_value().number,
                           error(error_kind::not_connected, "fence of a world",
                                 "that rank has closed or lost its connection to the meeting "
                                 "point: see the output of its process"),
                           1);
    }
  }

  [[nodiscard]] result<std::size_t> get(std::uint32_t rank, std::string_view key,
                                        std::span<std::byte> into, const wait_limit& limit) {
    if (key.size() > longest_tcp_key)
      return error::above_limit("get the value of a rank", "bytes of the key", key.size(),
                                longest_tcp_key);
    VERBSPP_TRYV(send(tcp_frame_type::get, rank, key, {}, limit));
    for (;;) {
      VERBSPP_TRY(answer, receive(limit));
      if (answer.number != rank || answer.key != key) continue;  // an answer to an earlier request
      if (answer.type == tcp_frame_type::no_value)
        return error(error_kind::not_found, "get the value of a rank",
                     "that rank has put no value with this key, or the world has no such rank: a "
                     "rank must put its value before the fence, and others get it after the fence");
      if (answer.type == tcp_frame_type::value) return copy_value(answer.value, into);
    }
  }

 private:
  [[nodiscard]] result<void> connect(const host_and_port& place, const wait_limit& limit) {
    // At rank 0, the meeting point is a thread of this process.
    const std::string_view host = launch_.rank == 0 ? "localhost" : place.host;
    for (bool was_refused = false;; was_refused = true) {
      auto connected = tcp_socket::connect(host, place.port, limit);
      if (connected.has_value()) {
        socket_ = std::move(connected).assume_value();
        return success();
      }
      // If a later attempt reaches the limit, the cause is still that the meeting point did not
      // accept the connection.
      if (limit.has_passed() && was_refused)
        return limit.failure(meeting,
                             "this rank could not connect to the meeting point: check that rank 0 "
                             "runs, that the host and the port are right, and that no firewall "
                             "blocks the port");
      if (connected.assume_error() != error_kind::not_connected) return connected.assume_error();
      const auto next = std::chrono::steady_clock::now() + time_between_attempts;
      VERBSPP_TRYV(wait_readable({}, limit.no_later_than(next)));
    }
  }

  /// Asks which ranks have not reached the fence. \returns success if all have reached it by now
  [[nodiscard]] group_result<void> who_is_missing(const wait_limit& limit) {
    const error cause = limit.failure(
        "fence of a world", "that rank has not reached the fence: see the output of its process");
    const error unknown =
        limit.failure("fence of a world",
                      "at least one rank has not reached the fence, or the meeting point does not "
                      "respond: see the output of the processes");
    const wait_limit soon(time_for_who);
    if (!send(tcp_frame_type::who, 0, {}, {}, soon).has_value()) return unknown;
    for (;;) {
      const auto answer = receive(soon);
      if (!answer.has_value() || soon.has_passed()) return unknown;
      const tcp_frame& told = answer.assume_value();
      if (told.type == tcp_frame_type::released && told.number >= fences_) return success();
      const auto count = static_cast<std::uint32_t>(number_at(told.value, 0, 4));
      if (told.type == tcp_frame_type::missing && count != 0)
        return group_error(told.number, cause, count);
    }
  }

  /// Waits until the socket is ready. \returns false if the limit expired first, or polling failed
  [[nodiscard]] bool wait_for(short events, const wait_limit& limit) const noexcept {
    pollfd watched{.fd = socket_.descriptor(), .events = events, .revents = 0};
    const auto is_ready = wait_readable(std::span(&watched, 1), limit);
    return is_ready.has_value() && is_ready.assume_value();
  }

  [[nodiscard]] result<void> send(tcp_frame_type type, std::uint32_t number, std::string_view key,
                                  std::span<const std::byte> value, const wait_limit& limit) {
    std::vector<std::byte> bytes;
    append_frame(bytes, type, number, key, value);
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t now = ::send(socket_.descriptor(), bytes.data() + sent, bytes.size() - sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
      if (now > 0) {
        sent += static_cast<std::size_t>(now);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (wait_for(POLLOUT, limit)) continue;
        // A frame that was sent only in part makes the connection unusable.
        if (sent != 0) socket_.close();
        return limit.failure(meeting,
                             "the meeting point has not accepted the data yet: the process of rank "
                             "0 hangs or is busy, or the network to it has failed");
      } else if (errno != EINTR) {
        return gone();
      }
    }
    return success();
  }

  [[nodiscard]] result<tcp_frame> receive(const wait_limit& limit) {
    std::array<std::byte, 65536> bytes;
    for (;;) {
      if (std::optional<tcp_frame> frame = in_.next()) return std::move(*frame);
      if (in_.is_wrong()) return gone();
      const ssize_t got = ::recv(socket_.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (got > 0) {
        in_.add(std::span(bytes).first(static_cast<std::size_t>(got)));
      } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        if (!wait_for(POLLIN, limit))
          return limit.failure(
              meeting,
              "the meeting point has not answered: the process of rank 0 hangs or is busy, another "
              "program uses its port, the network to it has failed, or the limit was too short");
      } else if (got == 0 || errno != EINTR) {
        return gone();
      }
    }
  }

  tcp_launch launch_;
  // Destroyed after `socket_`, because the meeting point's destructor waits until all ranks have
  // left.
  std::unique_ptr<meeting_point> point_{};
  tcp_socket socket_{};
  tcp_frames in_{};
  std::uint32_t fences_ = 0;
  std::uint32_t fences_sent_ = 0;
};

}  // namespace detail

tcp_bootstrap::tcp_bootstrap(std::shared_ptr<detail::tcp_rank> made) noexcept
    : rank_(std::move(made)) {}

result<tcp_bootstrap> tcp_bootstrap::join(const tcp_launch& launch,
                                          const wait_limit& limit) noexcept {
  if (launch.size == 0 || launch.size > detail::most_ranks)
    return error::out_of_range(meeting, "size of the world", launch.size,
                               "a world has 1 to 65,535 ranks");
  if (launch.rank >= launch.size)
    return error::above_limit(meeting, "rank", launch.rank, launch.size - 1,
                              "a rank must be below the world's size");
  if (launch.name.size() > detail::longest_tcp_key)
    return error::above_limit(meeting, "bytes of the world's name", launch.name.size(),
                              detail::longest_tcp_key);
  return detail::without_exceptions(meeting, [&]() -> result<tcp_bootstrap> {
    auto made = std::make_shared<detail::tcp_rank>(launch);
    VERBSPP_TRYV(made->join(limit));
    return tcp_bootstrap(std::move(made));
  });
}

result<tcp_bootstrap> tcp_bootstrap::from_environment(const wait_limit& limit) noexcept {
  tcp_launch launch;
  VERBSPP_TRY(size, detail::size_from_environment());
  VERBSPP_TRY(rank, detail::rank_from_environment());
  launch.size = size;
  launch.rank = rank;
  const char* const place = std::getenv("VERBSPP_MEETING_POINT");
  if (place == nullptr)
    return error(error_kind::not_found, "VERBSPP_MEETING_POINT",
                 "it is not set: set it on all ranks to the host of rank 0 and a free port there, "
                 "such as node17:4711");
  launch.meeting_point = place;
  if (const char* const name = std::getenv("VERBSPP_WORLD")) launch.name = name;
  return join(launch, limit);
}

std::uint32_t tcp_bootstrap::rank() const noexcept { return rank_ ? rank_->rank() : 0; }

std::uint32_t tcp_bootstrap::size() const noexcept { return rank_ ? rank_->size() : 0; }

result<void> tcp_bootstrap::put(std::string_view key, std::span<const std::byte> value) noexcept {
  if (!rank_) return detail::moved_from_bootstrap(meeting);
  return detail::without_exceptions(meeting, [&] { return rank_->put(key, value); });
}

group_result<void> tcp_bootstrap::fence(const wait_limit& limit) noexcept {
  if (!rank_) return detail::moved_from_bootstrap(meeting);
  return detail::without_exceptions(meeting, [&] { return rank_->fence(limit); });
}

result<std::size_t> tcp_bootstrap::get(std::uint32_t rank, std::string_view key,
                                       std::span<std::byte> into,
                                       const wait_limit& limit) noexcept {
  if (!rank_) return detail::moved_from_bootstrap(meeting);
  return detail::without_exceptions(meeting, [&] { return rank_->get(rank, key, into, limit); });
}

}  // namespace verbspp
