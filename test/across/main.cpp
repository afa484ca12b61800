// SPDX-License-Identifier: Apache-2.0
/// \file
/// One end of a connection, usually between two machines. The tests start this program as both
/// ends; `--help` prints its usage.

#include "options.hpp"
#include <verbspp/device/route.hpp>
#include <verbspp/exchange.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <tuple>
#include <utility>

using namespace verbspp;
using namespace verbspp::across;

namespace {

constexpr access_flags exposed_rights =
    access::local_write | access::remote_read | access::remote_write;
using exposed_memory = registered_buffer<exposed_rights>;
using local_memory = registered_buffer<>;
using their_memory = remote_memory<access::remote_read | access::remote_write>;

/// Each end sends these values to the other: its memory, the number of rounds that it has
/// completed, and a random number. The end with the smaller random number begins each round.
using told = std::tuple<their_memory, std::uint32_t, std::uint64_t>;

constexpr int between_tries = 100;  // in milliseconds
constexpr exchange_options protocol{.application = "across", .version = 1};

std::byte byte_of(std::uint32_t round, std::size_t at) {
  return std::byte((std::size_t{round} * 131 + at * 7 + at / 256) & 0xff);
}

void fill(local_memory& memory, std::uint32_t round) {
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = byte_of(round, i);
}

template <class Memory>
result<void> check(const Memory& memory, std::uint32_t round, const char* what) {
  for (std::size_t i = 0; i < memory.size(); ++i)
    if (memory[i] != byte_of(round, i))
      return error(error_kind::driver, what, "the bytes do not belong to this round");
  return success();
}

/// Plays rounds with the other end. In a round, one end writes a pattern to the other's memory,
/// reads it back from there (except with UC), and sends it as a message. Then the other end does
/// the same.
class player {
 public:
  static result<player> prepare(const options& given) {
    VERBSPP_TRY(context, open(given));
    VERBSPP_TRY(domain, protection_domain::allocate(context));
    VERBSPP_TRY(exposed, exposed_memory::allocate(domain, given.bytes));
    VERBSPP_TRY(sent, local_memory::allocate(domain, given.bytes));
    VERBSPP_TRY(got, local_memory::allocate(domain, given.bytes));
    player made(given, std::move(domain), std::move(exposed), std::move(sent), std::move(got));
    if (given.listens()) VERBSPP_TRYV(made.listen());
    return made;
  }

  /// Plays all rounds. Reconnects after a lost connection, as often as the options permit.
  transport_result<void> play() {
    for (unsigned connections = 1;; ++connections) {
      transport_result<void> played = play_connected();
      if (played.has_value()) return played;
      std::cout << "the connection broke after " << rounds_ << " rounds: " << played.error()
                << '\n';
      channel_ = channel();
      socket_.close();
      if (connections == given_.connections) return played;
      // steady: this pause only separates attempts to connect; their number is limited
      ::poll(nullptr, 0, between_tries);
    }
  }

 private:
  player(options given, protection_domain domain, exposed_memory exposed, local_memory sent,
         local_memory got)
      : given_(std::move(given)),
        domain_(std::move(domain)),
        exposed_(std::move(exposed)),
        sent_(std::move(sent)),
        got_(std::move(got)) {}

  static result<context> open(const options& given) {
    if (!given.towards) return open_device(given.device);
    VERBSPP_TRY(found, open_device_towards(*given.towards));
    return std::move(found.context);
  }

  result<void> listen() {
    VERBSPP_TRY(opened, tcp_listener::open(given_.port));
    listener_ = std::move(opened);
    std::cout << "listening" << '\n';
    return success();
  }

  template <class Builder>
  [[nodiscard]] result<prepared_channel> build(const Builder& start) const {
    return start.path_mtu(given_.mtu)
        .gid_index(given_.gid_index)
        .waiting(wait_mode::sleep())
        .default_limit(given_.limit)
        .build();
  }

  /// Connects to the other end. Retries until the time limit, because the other end may still be
  /// starting.
  [[nodiscard]] result<tcp_socket> reach_out() const {
    const wait_limit limit(given_.limit);
    for (;;) {
      auto socket = tcp_socket::connect(given_.host, given_.port, limit);
      if (socket.has_value() || limit.has_passed()) return socket;
      // steady: this pause is not critical, because the loop retries until its deadline
      ::poll(nullptr, 0, between_tries);
    }
  }

  result<told> connect() {
    VERBSPP_TRY(prepared, given_.by_uc ? build(domain_.build_channel<transport::uc>())
                                       : build(domain_.build_channel()));
    VERBSPP_TRY(mine, exposed_.remote());
    VERBSPP_TRY(into, got_.scatter());
    VERBSPP_TRY(arriving, prepared.post_receive({.elements = into}));
    arriving_.emplace(std::move(arriving));
    const told tells(mine, rounds_, ticket_);
    if (given_.meets) {
      VERBSPP_TRY(found, meet<told>(listener_, given_.host, given_.port, std::move(prepared), tells,
                                    given_.limit, protocol));
      socket_ = std::move(found.socket);
      channel_ = std::move(found.met.channel);
      return found.met.theirs;
    }
    VERBSPP_TRY(socket, given_.host.empty() ? listener_.accept(given_.limit) : reach_out());
    socket_ = std::move(socket);
    VERBSPP_TRY(met, exchange<told>(socket_.descriptor(), std::move(prepared), tells, given_.limit,
                                    protocol));
    channel_ = std::move(met.channel);
    return met.theirs;
  }

  transport_result<void> play_connected() {
    VERBSPP_TRY(theirs, connect());
    // A failure at the other end is detected through the socket.
    channel_.watch(socket_.descriptor());
    const auto& [memory, rounds, ticket] = theirs;
    // The ends may disagree by one round, because the end that received the last message may have
    // completed its round while the other has not. Both continue from the smaller number.
    rounds_ = std::min(rounds_, rounds);
    std::cout << "connected: " << channel_.endpoint() << '\n';
    const bool begins = ticket_ < ticket;
    while (rounds_ < given_.rounds) {
      if (begins) VERBSPP_TRYV(say(memory));
      VERBSPP_TRYV(hear());
      if (!begins) VERBSPP_TRYV(say(memory));
      ++rounds_;
      std::cout << "round " << rounds_ << '\n';
    }
    // When all rounds are over, both ends exchange farewells. The end that begins each round waits
    // for the other's farewell before it sends its own.
    if (begins) VERBSPP_TRYV(hear_farewell());
    VERBSPP_TRYV(say_farewell());
    return begins ? success() : hear_farewell();
  }

  transport_result<void> say(const their_memory& memory) {
    fill(sent_, rounds_);
    VERBSPP_TRYV(channel_.write(sent_, {.remote = memory}));
    if (!given_.by_uc) {
      std::ranges::fill(sent_, std::byte{0});
      VERBSPP_TRYV(channel_.read(sent_, {.remote = memory}));
      VERBSPP_TRYV(check(sent_, rounds_, "read back"));
    }
    VERBSPP_TRYV(channel_.send(sent_));
    return success();
  }

  transport_result<void> hear() {
    VERBSPP_TRYV(arriving_->wait());
    VERBSPP_TRYV(check(got_, rounds_, "receive"));
    VERBSPP_TRYV(check(exposed_, rounds_, "be written to"));
    VERBSPP_TRY(into, got_.scatter());
    VERBSPP_TRY(next, channel_.post_receive({.elements = into}));
    arriving_.emplace(std::move(next));
    return success();
  }

  [[nodiscard]] result<void> say_farewell() const {
    if (::send(socket_.descriptor(), "x", 1, MSG_NOSIGNAL) == 1) return success();
    return error::from_errno(errno, "say farewell");
  }

  [[nodiscard]] result<void> hear_farewell() const {
    pollfd entry{.fd = socket_.descriptor(), .events = POLLIN, .revents = 0};
    const auto limit = std::chrono::milliseconds(given_.limit);
    char letter = 0;
    if (::poll(&entry, 1, static_cast<int>(limit.count())) == 1 &&
        ::recv(socket_.descriptor(), &letter, 1, 0) == 1)
      return success();
    return error(error_kind::not_connected, "hear the farewell", "the other end has disconnected");
  }

  options given_;
  protection_domain domain_;
  tcp_listener listener_{};
  exposed_memory exposed_;
  local_memory sent_;
  local_memory got_;
  channel channel_{};
  std::optional<pending<>> arriving_{};
  tcp_socket socket_{};
  std::uint32_t rounds_ = 0;
  std::uint64_t ticket_ = std::random_device()();
};

}  // namespace

int main(int argc, char** argv) {
  std::cout << std::unitbuf;  // other programs wait for the output
  const options given = arguments(argc, argv).parse();
  auto made = player::prepare(given);
  if (!made.has_value()) {
    std::cout << made.error() << '\n';
    return EXIT_FAILURE;
  }
  return made.value().play().has_value() ? EXIT_SUCCESS : EXIT_FAILURE;
}
