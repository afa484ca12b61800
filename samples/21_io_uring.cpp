// SPDX-License-Identifier: Apache-2.0
/// \file
/// One thread waits with io_uring for both the messages of a channel and the bytes of a socket. The
/// peer is a thread of this program. Exits with 77 if the kernel does not allow io_uring.

#include <verbspp/channel.hpp>

#include <liburing.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string_view>
#include <thread>
#include <utility>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr unsigned messages = 200;
constexpr int skipped = 77;

/// Tags of the ring's completions: they show which event has occurred.
enum tag : std::uint64_t { channel_is_ready = 1, bytes_have_arrived = 2 };

/// Requests a single event of a channel's descriptor.
void poll_once(io_uring& ring, int descriptor) {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring);
  io_uring_prep_poll_add(entry, descriptor, POLLIN);
  io_uring_sqe_set_data64(entry, channel_is_ready);
}

void receive(io_uring& ring, int socket, std::array<char, 64>& into) {
  io_uring_sqe* const entry = io_uring_get_sqe(&ring);
  io_uring_prep_recv(entry, socket, into.data(), into.size(), 0);
  io_uring_sqe_set_data64(entry, bytes_have_arrived);
}

/// Waits for the next event of the ring, until the given time, but for an hour at most.
result<void> wait(io_uring& ring, wait_limit::time_point until) {
  const auto left =
      std::clamp<std::chrono::nanoseconds>(until - std::chrono::steady_clock::now(), 0s, 1h);
  __kernel_timespec timeout{.tv_sec = left / 1s, .tv_nsec = (left % 1s).count()};
  io_uring_cqe* first = nullptr;
  const int returned = io_uring_submit_and_wait_timeout(&ring, &first, 1, &timeout, nullptr);
  if (returned < 0 && returned != -ETIME && returned != -EINTR)
    return error::from_errno(-returned, "io_uring_submit_and_wait_timeout");
  return success();
}

/// Serves until the socket is closed, and all messages have arrived.
result<void> serve(io_uring& ring, inbox& arrivals, int socket) {
  unsigned from_channel = 0;
  std::size_t from_socket = 0;
  bool is_polling = false, is_open = true;
  std::array<char, 64> bytes{};
  receive(ring, socket, bytes);
  while (is_open || from_channel != messages) {
    VERBSPP_TRY(has_news, arrivals.request_notification());
    if (!has_news) {
      if (!std::exchange(is_polling, true)) poll_once(ring, arrivals.file_descriptor());
      VERBSPP_TRYV(wait(ring, arrivals.deadline()));
    }
    for (io_uring_cqe* done = nullptr; io_uring_peek_cqe(&ring, &done) == 0;) {
      const std::uint64_t what = io_uring_cqe_get_data64(done);
      const int outcome = done->res;
      io_uring_cqe_seen(&ring, done);
      if (outcome < 0) return error::from_errno(-outcome, "io_uring");
      if (what == channel_is_ready) {
        is_polling = false;
      } else if (outcome == 0) {
        is_open = false;
      } else {
        from_socket += static_cast<std::size_t>(outcome);
        receive(ring, socket, bytes);
      }
    }
    while (auto next = arrivals.poll()) {
      VERBSPP_TRY(message, std::move(*next));
      from_channel += message.size() == sizeof(unsigned) ? 1 : 0;
    }
  }
  std::cout << from_channel << " messages, " << from_socket << " bytes from the socket\n";
  if (from_socket == messages) return success();
  return error(error_kind::mismatch, "io_uring", "bytes from the socket are missing");
}

result<void> run(io_uring& ring, std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(pool, message_pool::create(domain, 32, 64));
  VERBSPP_TRY(left, domain.build_channel().waiting(wait_mode::sleep()).build());
  VERBSPP_TRY(right, domain.build_channel().max_inline_data(64).build());
  VERBSPP_TRY(arrivals, inbox::open(left, pool));
  const endpoint left_end = left.endpoint(), right_end = right.endpoint();
  VERBSPP_TRY(receiver, std::move(left).handshake(right_end));
  VERBSPP_TRY(sender, std::move(right).handshake(left_end));
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0)
    return error::from_errno(errno, "socketpair");
  result<void> sent = success();
  std::thread peer([&] {
    sent = [&]() -> result<void> {
      for (unsigned i = 0; i < messages; ++i) {
        VERBSPP_TRYV(sender.post_send({.elements = inline_payload(i)}));
        VERBSPP_TRYV(sender.wait(10s));
        if (::send(sockets[1], "x", 1, MSG_NOSIGNAL) != 1) return error::from_errno(errno, "send");
      }
      return success();
    }();
    ::close(sockets[1]);
  });
  const auto served = serve(ring, arrivals, sockets[0]);
  peer.join();
  ::close(sockets[0]);
  VERBSPP_TRYV(sent);
  return served;
}

}  // namespace

int main(int argc, char** argv) {
  io_uring ring{};
  if (const int returned = io_uring_queue_init(8, &ring, 0); returned != 0) {
    std::cerr << error::from_errno(-returned, "io_uring_queue_init") << '\n';
    return skipped;
  }
  const auto outcome = run(ring, argc > 1 ? argv[1] : "soft0");
  io_uring_queue_exit(&ring);
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
