// SPDX-License-Identifier: Apache-2.0
/// \file
/// Blocking and scoped calls: one process writes blocks into another's memory, first one after the
/// other, then several at the same time, and sends a message when they are complete.

#include <verbspp/channel.hpp>

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr std::uint32_t blocks = 16;
constexpr std::size_t block = 4096;
constexpr access_flags rights = access::local_write | access::remote_write;
using block_buffer = registered_buffer<rights>;
using target_memory = remote_memory<access::remote_write>;

/// Sends some bytes to the other process, and receives the same number of bytes.
template <std::size_t Size>
result<std::array<std::byte, Size>> trade(int socket, const std::array<std::byte, Size>& own) {
  constexpr auto size = static_cast<ssize_t>(Size);
  std::array<std::byte, Size> theirs{};
  errno = ECONNRESET;  // reported if the peer has closed the socket
  if (::send(socket, own.data(), Size, MSG_NOSIGNAL) != size ||
      ::recv(socket, theirs.data(), Size, MSG_WAITALL) != size)
    return error::from_errno(errno, "exchange with the other process",
                             "it has exited, or hangs: see its output");
  return theirs;
}

/// Returns when the peer has called this function as well.
result<void> meet(int socket) {
  VERBSPP_TRYV(trade(socket, std::array{std::byte{'m'}}));
  return success();
}

result<channel> connect(int socket, prepared_channel prepared) {
  VERBSPP_TRY(bytes, trade(socket, prepared.endpoint().encode()));
  VERBSPP_TRY(remote, endpoint::decode(bytes));
  VERBSPP_TRY(connected, std::move(prepared).handshake(remote));
  VERBSPP_TRYV(meet(socket));
  return connected;
}

transport_result<void> write_blocks(channel& peer, const block_buffer& source,
                                    const target_memory& target) {
  // Blocking: each call posts a request and waits for it. The first error is returned.
  for (std::size_t at = 0; at < blocks / 2 * block; at += block) {
    VERBSPP_TRY(from, source.gather(at, block));
    VERBSPP_TRY(to, target.slice(at, block));
    VERBSPP_TRYV(peer.write({.elements = from, .remote = to}));
  }

  // Scoped: the requests are in flight together, and all of them have finished when `scope`
  // returns, even if one fails. The error of `scope` shows whether the function or requests have
  // failed.
  VERBSPP_TRYV(peer.scope(
      [&](channel_scope& scope) -> result<void> {
        for (std::size_t at = blocks / 2 * block; at < blocks * block; at += block) {
          VERBSPP_TRY(from, source.gather(at, block));
          VERBSPP_TRY(to, target.slice(at, block));
          VERBSPP_TRYV(scope.post_write({.elements = from, .remote = to}));
        }
        return success();
      },
      5s));

  // The peer does not notice these writes to its memory. This message notifies it, and consists
  // only of a number.
  VERBSPP_TRYV(peer.send({.immediate = immediate_data(blocks)}));
  return success();
}

transport_result<void> run(std::string_view device_name, int socket, bool writes) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(buffer, block_buffer::allocate(domain, blocks * block));
  VERBSPP_TRY(prepared, domain.build_channel().build());

  if (writes) {
    for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = std::byte(i / block + 1);
    VERBSPP_TRY(peer, connect(socket, std::move(prepared)));
    std::array<std::byte, target_memory::encoded_size> bytes{};
    VERBSPP_TRY(told, trade(socket, bytes));
    VERBSPP_TRY(target, target_memory::decode(told));
    VERBSPP_TRYV(write_blocks(peer, buffer, target));
    return meet(socket);
  }

  // A receive for the writer's message at the end. It needs no memory, because the message has no
  // bytes.
  VERBSPP_TRY(arriving, prepared.post_receive({}));
  VERBSPP_TRY(peer, connect(socket, std::move(prepared)));
  VERBSPP_TRY(own, buffer.remote());
  VERBSPP_TRYV(trade(socket, own.encode()));
  VERBSPP_TRY(message, arriving.wait(5s));
  std::size_t right = 0;
  for (std::size_t i = 0; i < buffer.size(); ++i) right += buffer[i] == std::byte(i / block + 1);
  std::cout << message.immediate()->value() << " blocks were written, " << right << " of "
            << buffer.size() << " bytes are correct\n";
  // If a channel is destroyed too early, the acknowledgement of the peer's last message may be
  // lost.
  VERBSPP_TRYV(meet(socket));
  if (right != buffer.size())
    return error(error_kind::driver, "check the blocks", "data was damaged in flight");
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  // Creates two processes, with a socket between them. The device is opened after the fork, because
  // a child cannot use a device that its parent has opened.
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 1;
  const pid_t child = ::fork();
  if (child < 0) return 1;
  const bool writes = child == 0;
  const int socket = ends[writes ? 1 : 0];
  ::close(ends[writes ? 0 : 1]);
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);

  const auto outcome = run(argc > 1 ? argv[1] : "soft0", socket, writes);
  if (outcome.has_error())
    std::cerr << (writes ? "writer: " : "reader: ") << outcome.error() << '\n';
  ::close(socket);
  int status = 0;
  if (!writes && (::waitpid(child, &status, 0) != child || status != 0)) return 1;
  return outcome.has_value() ? 0 : 1;
}
