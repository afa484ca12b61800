// SPDX-License-Identifier: Apache-2.0
/// \file
/// A libFuzzer target. Whatever a peer sends in an exchange, and whenever it does, the
/// exchange must either succeed or end with an error that has a message.
///
/// The first byte of the input, modulo 4, is the number of frames from a valid peer that precede
/// the remaining bytes.

#include <verbspp/exchange.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <tuple>
#include <utility>

namespace {

using namespace verbspp;
using detail::exchange_core;
using detail::exchange_step;

using values = std::tuple<std::uint16_t, bounded_text<8>, remote_memory<access::remote_read>>;
using described = detail::exchanged_values<values>;

void require(bool holds) {
  if (!holds) std::abort();
}

detail::owned<exchange_core> side(int socket) {
  auto made = exchange_core::create({.file_descriptor = socket,
                                     .mine = described::description,
                                     .theirs = described::description,
                                     .largest_mine = described::largest,
                                     .largest_theirs = described::largest,
                                     .options = {.application = "fuzz", .version = 1}},
                                    std::chrono::seconds(10));
  detail::field_writer out(made.value()->values());
  described::write(out, {1, "text", {2, 3, remote_key(std::uint32_t{4})}});
  endpoint end{.number = 5, .link_layer = link_layer::ethernet, .gid_type = gid_type::roce_v2};
  end.address.bytes[15] = 1;
  made.value()->set_mine(end, out.size());
  return std::move(made).value();
}

/// Advances the exchange by one step. \returns true if the exchange has succeeded or failed
bool advance(exchange_core& core) {
  const auto step = core.poll();
  if (!step.has_value()) {
    require(step.error().message().size() > 10);
    require(step.error().message().size() == step.error().format({}));
    return true;
  }
  if (step.value() == exchange_step::greeted) core.offer();
  if (step.value() == exchange_step::offered) {
    detail::field_reader in(core.theirs());
    const auto read = described::read(in);
    if (read.has_value())
      core.set_connected();
    else
      core.refuse(read.error());
  }
  return step.value() == exchange_step::done;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::array<int, 2> sockets{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) == 0);
  {
    auto fuzzed = side(sockets[0]);
    auto peer = side(sockets[1]);
    for (int frames = data[0] % 4; frames > 0; --frames) {
      static_cast<void>(advance(*peer.get()));
      if (frames > 1 && advance(*fuzzed.get())) break;
    }
    static_cast<void>(::send(sockets[1], data + 1, size - 1, MSG_DONTWAIT | MSG_NOSIGNAL));
    ::shutdown(sockets[1], SHUT_WR);
    for (int i = 0; i < 12 && !advance(*fuzzed.get()); ++i) {
    }
    require(advance(*fuzzed.get()));
  }
  ::close(sockets[0]);
  ::close(sockets[1]);
  return 0;
}
