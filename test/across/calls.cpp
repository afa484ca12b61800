// SPDX-License-Identifier: Apache-2.0
/// \file
/// One end of a connection with calls, usually between two machines: a service for one client, or
/// the client. The client makes calls with and without lent memory, and lets some of the calls
/// reach their limits. The program accepts the options of `across`, but ignores `--meets`,
/// `--towards`, `--mtu`, `--uc` and `--connections`.

#include "../rnr_naks.hpp"
#include "options.hpp"
#include <verbspp/calls.hpp>
#include <verbspp/exchange.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace verbspp;
using namespace verbspp::across;

namespace {

constexpr exchange_options protocol{.application = "across with calls", .version = 1};

/// Returns its request.
struct echo {
  static constexpr std::uint16_t number = 1;
  static constexpr const char* name = "echo";
  using request = bytes;
  using answer = bytes;
};
/// Returns the sum of the lent bytes, which the service reads.
struct sum {
  static constexpr std::uint16_t number = 2;
  static constexpr const char* name = "sum";
  static constexpr access_flags lends = access::remote_read;
  using request = std::uint8_t;
  using answer = std::uint64_t;
};
/// Fills the lent memory with the request.
struct fill {
  static constexpr std::uint16_t number = 3;
  static constexpr const char* name = "fill";
  static constexpr access_flags lends = access::remote_write;
  using request = std::uint8_t;
  using answer = void;
};
/// Like `fill`, but the service writes and answers only during the next `wake`. By then, the caller
/// has given up.
struct fill_late {
  static constexpr std::uint16_t number = 4;
  static constexpr const char* name = "fill_late";
  static constexpr access_flags lends = access::remote_write;
  using request = std::uint8_t;
  using answer = void;
};
struct wake {
  static constexpr std::uint16_t number = 5;
  static constexpr const char* name = "wake";
  using request = std::uint8_t;
  using answer = std::uint32_t;  ///< the number of calls of `fill_late` that were kept
};
/// Tells the service that the client will close its connection next.
struct finish {
  static constexpr std::uint16_t number = 6;
  static constexpr const char* name = "finish";
  using request = std::uint8_t;
  using answer = void;
};

result<void> differs(const char* what) {
  return error(error_kind::mismatch, what, "the answer is wrong");
}

template <class Builder>
result<prepared_channel> build(const Builder& start, const options& given) {
  // A long ACK timeout avoids retransmissions: an overloaded machine acknowledges late, and rxe may
  // fail when it retransmits a bind.
  return start.ack_timeout(ack_timeout::from(18).value())
      .gid_index(given.gid_index)
      .waiting(wait_mode::sleep())
      .default_limit(given.limit)
      .build();
}

/// The work of the handlers, all of which run on one thread.
class handling {
 public:
  explicit handling(const options& given) : limit_(given.limit) {}

  result<std::uint64_t> add_up(received_call<sum>& call, registered_buffer<>& into) const {
    std::uint64_t all = 0;
    for (std::uint64_t at = 0; at < call.lent_size(); at += into.size()) {
      const auto part = std::min<std::uint64_t>(into.size(), call.lent_size() - at);
      VERBSPP_TRY(element, into.scatter(0, part));
      VERBSPP_TRYV(call.read(element, at, limit_));
      for (std::uint64_t i = 0; i < part; ++i) all += std::to_integer<std::uint64_t>(into[i]);
    }
    return all;
  }
  template <class Called>
  result<void> write_all(received_call<Called>& call, registered_buffer<>& from) const {
    std::ranges::fill(from, static_cast<std::byte>(call.request()));
    for (std::uint64_t at = 0; at < call.lent_size(); at += from.size()) {
      VERBSPP_TRY(element,
                  from.gather(0, std::min<std::uint64_t>(from.size(), call.lent_size() - at)));
      VERBSPP_TRYV(call.write(element, at, limit_));
    }
    return success();
  }
  void keep(received_call<fill_late> call) { late_.push_back(std::move(call)); }
  /// Writes to the memory of the calls that were kept. Their callers have given up, so the writes
  /// fail, or have no effect.
  std::uint32_t write_late(registered_buffer<>& from) {
    for (received_call<fill_late>& each : late_) {
      static_cast<void>(write_all(each, from));
      static_cast<void>(each.answer());
    }
    const auto count = static_cast<std::uint32_t>(late_.size());
    late_.clear();
    return count;
  }

 private:
  std::chrono::seconds limit_;
  std::vector<received_call<fill_late>> late_{};
};

result<void> serve(const options& given) {
  VERBSPP_TRY(context, open_device(given.device));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(scratch, registered_buffer<>::allocate(domain, 5000));
  handling handlers(given);
  bool is_over = false;
  VERBSPP_TRY(serving,
              service::create(
                  domain, {.clients = 1, .waiting = wait_mode::sleep()},
                  handles<echo>([](received_call<echo> call) {
                    const std::vector<std::byte> copy(call.request().begin(), call.request().end());
                    static_cast<void>(call.answer(copy));
                  }),
                  handles<sum>([&](received_call<sum> call) {
                    const auto all = handlers.add_up(call, scratch);
                    if (all.has_error()) return call.refuse(all.error());
                    static_cast<void>(call.answer(all.value()));
                  }),
                  handles<fill>([&](received_call<fill> call) {
                    const auto written = handlers.write_all(call, scratch);
                    if (written.has_error()) return call.refuse(written.error());
                    static_cast<void>(call.answer());
                  }),
                  handles<fill_late>(
                      [&](received_call<fill_late> call) { handlers.keep(std::move(call)); }),
                  handles<wake>([&](std::uint8_t) { return handlers.write_late(scratch); }),
                  handles<finish>([&](std::uint8_t) { is_over = true; })));
  VERBSPP_TRY(prepared, build(domain.build_channel().hub(serving.hub()), given));
  VERBSPP_TRY(listener, tcp_listener::open(given.port));
  std::cout << "listening" << '\n';
  VERBSPP_TRY(socket, listener.accept(given.limit));
  VERBSPP_TRY(met, exchange<std::uint32_t>(socket.descriptor(), std::move(prepared),
                                           std::uint32_t{0}, given.limit, protocol));
  VERBSPP_TRYV(serving.add(std::move(met.channel)));
  // The client closes its end after the answer to `finish`, so the service then loses that client.
  for (const wait_limit until(std::chrono::minutes(3)); serving.clients() != 0;) {
    if (until.has_passed()) return until.failure("serve", "the client has not finished");
    VERBSPP_TRYV(serving.serve(std::chrono::milliseconds(50)));
  }
  const service_statistics counted = serving.statistics();
  std::cout << "calls " << counted.calls << ", lanes " << counted.lanes << '\n';
  if (!is_over) return error(error_kind::not_connected, "serve", "the client left too early");
  return success();
}

class client {
 public:
  static result<client> connect(const options& given) {
    VERBSPP_TRY(context, open_device(given.device));
    VERBSPP_TRY(domain, protection_domain::allocate(context));
    VERBSPP_TRY(prepared, build(domain.build_channel(), given));
    VERBSPP_TRY(calls, caller::open(prepared));
    VERBSPP_TRY(socket, reach_out(given));
    VERBSPP_TRY(met, exchange<std::uint32_t>(socket.descriptor(), std::move(prepared),
                                             std::uint32_t{0}, given.limit, protocol));
    VERBSPP_TRYV((calls.start<echo, sum, fill, fill_late, wake, finish>(std::move(met.channel),
                                                                        given.limit)));
    return client(given.limit, std::move(domain), std::move(calls));
  }

  /// Makes calls of `echo`, and calls that lend 0, 100 and `largest` bytes.
  result<void> play(std::uint32_t round, std::size_t largest) {
    VERBSPP_TRYV(echo_several(round));
    for (const std::size_t size : {std::size_t{0}, std::size_t{100}, largest}) {
      VERBSPP_TRYV(lend(round, size));
      VERBSPP_TRYV(give_up(round, size));
    }
    return success();
  }
  result<void> finish_all() { return calls_.call<finish>(std::uint8_t{0}, limit_); }

 private:
  client(std::chrono::seconds limit, protection_domain domain, caller calls)
      : limit_(limit), domain_(std::move(domain)), calls_(std::move(calls)) {}

  static result<tcp_socket> reach_out(const options& given) {
    const wait_limit limit(given.limit);
    for (;;) {
      auto socket = tcp_socket::connect(given.host, given.port, limit);
      if (socket.has_value() || limit.has_passed()) return socket;
      // steady: this pause is not critical, because the loop retries until its deadline
      ::poll(nullptr, 0, 100);
    }
  }

  static std::vector<std::byte> pattern(std::size_t size, std::uint32_t round) {
    std::vector<std::byte> made(size);
    for (std::size_t i = 0; i < size; ++i) made[i] = static_cast<std::byte>(i * 31 + round);
    return made;
  }

  /// Makes more calls than can be in flight at the same time.
  result<void> echo_several(std::uint32_t round) {
    std::vector<std::pair<std::vector<std::byte>, pending_call<echo>>> open;
    for (std::uint32_t i = 0; i < 20; ++i) {
      std::vector<std::byte> sent = pattern((round * 20 + i) % 1000, round + i);
      auto posted = calls_.post_call<echo>(sent);
      if (posted.has_error()) {
        if (posted.error() != error_kind::would_block) return posted.error();
        VERBSPP_TRYV(take(open));
        posted = calls_.post_call<echo>(sent);
      }
      VERBSPP_TRY(call, std::move(posted));
      open.emplace_back(std::move(sent), std::move(call));
    }
    return take(open);
  }
  result<void> take(std::vector<std::pair<std::vector<std::byte>, pending_call<echo>>>& open) {
    for (auto& [sent, call] : open) {
      VERBSPP_TRY(got, call.wait(limit_));
      if (!std::ranges::equal(got.view(), sent)) return differs("echo");
    }
    open.clear();
    return success();
  }

  result<void> lend(std::uint32_t round, std::size_t size) {
    const std::vector<std::byte> sent = pattern(size, round);
    VERBSPP_TRY(added, calls_.call<sum>(std::uint8_t{0}, sent, limit_));
    const std::uint64_t wanted = std::accumulate(
        sent.begin(), sent.end(), std::uint64_t{0},
        [](std::uint64_t all, std::byte each) { return all + std::to_integer<unsigned>(each); });
    if (added != wanted) return differs("sum");
    std::vector<std::byte> into(size, std::byte{0xff});
    VERBSPP_TRYV(calls_.call<fill>(static_cast<std::uint8_t>(round), into, limit_));
    if (!is_all(into, round)) return differs("fill");
    return success();
  }

  /// Gives up a call, and checks that the service can't change the memory any more.
  result<void> give_up(std::uint32_t round, std::size_t size) {
    const std::uint32_t before = round + 1;
    std::vector<std::byte> into(size, static_cast<std::byte>(before));
    const auto early = calls_.call<fill_late>(static_cast<std::uint8_t>(round), into,
                                              std::chrono::milliseconds(1));
    if (early.has_value()) return differs("fill_late");
    if (early.error() != error_kind::timed_out) return early.error();
    VERBSPP_TRYV(calls_.call<wake>(std::uint8_t{0}, limit_));
    if (!is_all(into, before)) return differs("give up a call");
    return success();
  }
  static bool is_all(std::span<const std::byte> memory, std::uint32_t value) {
    return std::ranges::all_of(
        memory, [&](std::byte each) { return each == static_cast<std::byte>(value); });
  }

  std::chrono::seconds limit_;
  protection_domain domain_;
  caller calls_;
};

result<void> play(const options& given) {
  const auto refused = test::rnr_naks(given.device);
  VERBSPP_TRY(made, client::connect(given));
  for (std::uint32_t round = 0; round < given.rounds; ++round) {
    VERBSPP_TRYV(made.play(round, given.bytes));
    std::cout << "round " << round + 1 << '\n';
  }
  VERBSPP_TRYV(made.finish_all());
  if (test::rnr_naks(given.device) != refused)
    return error(error_kind::mismatch, "play", "a message has found no receive");
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  std::cout << std::unitbuf;  // other programs wait for the output
  const options given = arguments(argc, argv).parse();
  const result<void> outcome = given.host.empty() ? serve(given) : play(given);
  if (outcome.has_value()) return EXIT_SUCCESS;
  std::cout << outcome.error() << '\n';
  return EXIT_FAILURE;
}
