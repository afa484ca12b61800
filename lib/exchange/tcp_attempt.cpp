// SPDX-License-Identifier: Apache-2.0
#include "exchange/tcp_attempt.hpp"

#include <verbspp/base/detail/wait_readable.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace verbspp::detail {

namespace {

constexpr const char* connecting = "connect over TCP";

}  // namespace

void send_at_once(int descriptor) noexcept {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

result<void> tcp_attempt::start(std::string_view host, std::string_view port) noexcept {
  VERBSPP_TRY(number, port_of(port, false));
  VERBSPP_TRY(numeric, addresses_of_number(host, number));
  if (numeric.count > 0) {
    take_addresses(numeric);
    return success();
  }
  VERBSPP_TRY(lookup, pending_lookup::start(host, number));
  lookup_ = std::move(lookup);
  return success();
}

void tcp_attempt::take_addresses(const host_addresses& found) noexcept {
  found_ = found;
  const auto now = clock::now();
  until_all_ = limit_.deadline();
  // The conditions are tested in this order so that neither expression overflows.
  if (until_all_ > now && time_to_connect_ < until_all_ - now) until_all_ = now + time_to_connect_;
}

result<std::optional<tcp_socket>> tcp_attempt::advance() noexcept {
  if (lookup_.is_under_way()) {
    if (!lookup_.is_answered()) {
      if (!limit_.has_passed()) return std::optional<tcp_socket>();
      return limit_.failure(
          "look up a host's addresses",
          "the system has not answered the lookup of the name: check that the system's name "
          "servers are reachable (/etc/resolv.conf), or allow more time");
    }
    VERBSPP_TRY(found, lookup_.addresses());
    lookup_ = {};
    take_addresses(found);
  }
  for (;;) {
    const std::optional<int> outcome =
        current_.is_open() ? outcome_of_current() : std::optional(begin_next());
    if (!outcome || *outcome == EINPROGRESS) return std::optional<tcp_socket>();
    if (*outcome == 0) {
      send_at_once(current_.descriptor());
      return std::optional(std::move(current_));
    }
    if (const auto failure = give_up_current(*outcome)) return *failure;
  }
}

/// Starts to connect to the next address. Returns 0 if the attempt has already succeeded,
/// EINPROGRESS if it continues, and otherwise the errno of the failure.
int tcp_attempt::begin_next() noexcept {
  const socket_address& address = found_.addresses[next_];
  const auto left = static_cast<int>(found_.count - next_);
  ++next_;
  // The remaining addresses get equal shares of the time.
  const auto now = clock::now();
  until_ = until_all_ == (clock::time_point::max)()
               ? until_all_
               : now + (std::max(until_all_, now) - now) / left;
  current_ = tcp_socket::from_native(
      ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!current_.is_open()) return errno;
  return ::connect(current_.descriptor(), address.get(), address.size) == 0 ? 0 : errno;
}

/// Returns the outcome of the current attempt: 0 if it has succeeded, ETIMEDOUT if its share of the
/// time is over or the limit has been reached, and otherwise the errno of the failure. Empty while
/// the attempt is in progress.
std::optional<int> tcp_attempt::outcome_of_current() noexcept {
  pollfd entry{.fd = current_.descriptor(), .events = POLLOUT, .revents = 0};
  const int ready = ::poll(&entry, 1, 0);
  if (ready < 0 && errno != EINTR) return errno;
  if (ready <= 0) {
    if (limit_.has_passed() || clock::now() >= until_) return ETIMEDOUT;
    return std::nullopt;
  }
  int outcome = 0;
  socklen_t size = sizeof outcome;
  return ::getsockopt(current_.descriptor(), SOL_SOCKET, SO_ERROR, &outcome, &size) == 0 ? outcome
                                                                                         : errno;
}

/// Notes the failure of the current address. If this was the last address, or the time limit has
/// expired, returns the failures so far.
std::optional<error> tcp_attempt::give_up_current(int errnum) noexcept {
  current_.close();
  std::array<char, 64> other{};
  const char* what = other.data();
  if (errnum == ECONNREFUSED)
    what = "no program listens there, or a firewall rejects connections";
  else if (errnum == ETIMEDOUT)
    what = "this address has not answered";
  else
    what = ::strerror_r(errnum, other.data(), other.size());
  const int added = std::snprintf(account_.data() + account_size_, account_.size() - account_size_,
                                  "%s%s: %s", account_size_ == 0 ? "" : "; ",
                                  printed_address(found_.addresses[next_ - 1]).text.data(), what);
  account_size_ =
      std::min(account_size_ + static_cast<std::size_t>(std::max(added, 0)), account_.size() - 1);
  const std::string_view all(account_.data(), account_size_);
  if (limit_.has_passed())
    return error_in_words(limit_.failure(connecting).kind(), connecting, all);
  if (next_ < found_.count) return std::nullopt;
  return error_in_words(error_kind::not_connected, connecting, all, errnum);
}

int tcp_attempt::file_descriptor() const noexcept {
  return lookup_.is_under_way() ? lookup_.file_descriptor() : current_.descriptor();
}

short tcp_attempt::events() const noexcept { return lookup_.is_under_way() ? POLLIN : POLLOUT; }

result<void> tcp_attempt::wait() const noexcept {
  pollfd entry{.fd = file_descriptor(), .events = events(), .revents = 0};
  VERBSPP_TRYV(wait_readable(std::span(&entry, 1), step()));
  return success();
}

}  // namespace verbspp::detail
