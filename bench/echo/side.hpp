// SPDX-License-Identifier: Apache-2.0
/// \file
/// Helpers for all measurements. Each measurement has an answering process, and one or several
/// processes that measure. A socket connects each measuring process to the answering process.
#pragma once

#include <verbspp/verbspp.hpp>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

using namespace verbspp;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

constexpr auto patience = 60s;

struct options {
  std::string_view device = "soft0";
  std::uint64_t rounds = 5;
  std::uint64_t messages = 20'000;
  std::string_view only;
};

/// The device of one process of the benchmark, and a socket to the other process.
struct side {
  protection_domain domain;
  int socket;
  std::uint64_t messages;
  std::span<const int> sockets{};  ///< at the answering end, the sockets to all other processes
};

template <std::size_t Size>
result<std::array<std::byte, Size>> trade(int socket, const std::array<std::byte, Size>& own) {
  constexpr auto size = static_cast<ssize_t>(Size);
  std::array<std::byte, Size> theirs{};
  errno = ECONNRESET;
  if (::send(socket, own.data(), Size, MSG_NOSIGNAL) != size ||
      ::recv(socket, theirs.data(), Size, MSG_WAITALL) != size)
    return error::from_errno(errno, "exchange with the other process", "see its output");
  return theirs;
}

inline result<void> meet(int socket) {
  VERBSPP_TRYV(trade(socket, std::array{std::byte{'m'}}));
  return success();
}

inline result<void> check(int errnum, const char* what) {
  if (errnum != 0) return error::from_errno(errnum, what);
  return success();
}

template <class Prepared>
auto connect(const side& mine, Prepared prepared)
    -> decltype(std::move(prepared).handshake(endpoint())) {
  VERBSPP_TRY(bytes, trade(mine.socket, prepared.endpoint().encode()));
  VERBSPP_TRY(remote, endpoint::decode(bytes));
  return std::move(prepared).handshake(remote);
}

using nanoseconds_each = std::vector<std::int64_t>;

inline std::uint64_t all_messages(const side& mine) { return mine.messages / 10 + mine.messages; }

/// Calls `ask` for each message, and returns the times of the calls. The first calls, `messages /
/// 10` of them, are a warm-up, and are not recorded.
template <class Ask>
result<nanoseconds_each> time_each(const side& mine, Ask ask) {
  nanoseconds_each times;
  times.reserve(mine.messages);
  for (std::uint64_t i = 0; i < all_messages(mine); ++i) {
    const auto begin = clock_type::now();
    VERBSPP_TRYV(ask());
    const std::chrono::nanoseconds length = clock_type::now() - begin;
    if (i >= mine.messages / 10) times.push_back(length.count());
  }
  VERBSPP_TRYV(meet(mine.socket));
  return times;
}

template <class Answer>
result<void> answer_each(const side& mine, Answer answer) {
  for (std::uint64_t i = 0; i < all_messages(mine); ++i) VERBSPP_TRYV(answer());
  return meet(mine.socket);
}

/// A way to exchange messages: one end measures, and the other one answers. If several processes
/// measure, the slowest one counts.
struct form {
  result<nanoseconds_each> (*measure)(const side&);
  result<void> (*answer)(const side&);
  std::uint32_t measuring = 1;  ///< the number of processes that measure
};

}  // namespace bench
