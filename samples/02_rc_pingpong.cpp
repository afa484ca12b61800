// SPDX-License-Identifier: Apache-2.0
/// \file
/// Two processes send a message back and forth, and check the data.
///
/// The options are like those of ibv_rc_pingpong, which can be the other end if --ibv-exchange is
/// given.

#include "common/open.hpp"
#include "common/tcp.hpp"
#include "rc_pingpong/exchange.hpp"
#include "rc_pingpong/options.hpp"
#include <verbspp/verbspp.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <thread>

namespace {

using namespace verbspp;
using rc_pingpong::options;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t block = 4096;

/// A buffer whose size the user chooses. If it cannot be allocated, `allocate` returns an error
/// instead of throwing.
class buffer {
 public:
  static result<buffer> allocate(std::size_t size) {
    std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[size]{});
    if (!memory) return error::from_errno(ENOMEM, "allocate messages", "choose a smaller --size");
    return buffer(std::move(memory), size);
  }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {memory_.get(), size_}; }

 private:
  buffer(std::unique_ptr<std::byte[]> memory, std::size_t size) noexcept
      : memory_(std::move(memory)), size_(size) {}
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_;
};

/// The messages that both ends send. All are taken from the same random bytes; message i starts at
/// block i modulo 8. So no message is copied, and each message, unless it is very short, differs
/// from the previous one.
class script {
 public:
  static result<script> write(const options& given) {
    VERBSPP_TRY(noise, buffer::allocate(given.size.value() + (variants - 1) * block));
    std::uint64_t state = 88172645463325252;
    for (std::byte& each : noise.bytes()) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      each = std::byte(state >> 32 & 0xff);
    }
    // ibv_rc_pingpong --chk only checks that each page begins with a zero.
    if (given.ibv_exchange)
      for (std::size_t i = 0; i < noise.bytes().size(); i += block) noise.bytes()[i] = {};
    return script(std::move(noise), given.size.value());
  }

  [[nodiscard]] std::span<std::byte> all() const noexcept { return noise_.bytes(); }
  [[nodiscard]] std::size_t offset(std::uint32_t message) const noexcept {
    return message % variants * block;
  }
  [[nodiscard]] std::span<const std::byte> message(std::uint32_t number) const noexcept {
    return noise_.bytes().subspan(offset(number), size_);
  }

 private:
  static constexpr std::uint32_t variants = 8;
  script(buffer noise, std::size_t size) noexcept : noise_(std::move(noise)), size_(size) {}
  buffer noise_;
  std::size_t size_;
};

/// Compares the whole messages, or, which is faster, a cache line of each block and the last cache
/// line.
bool same(std::span<const std::byte> a, std::span<const std::byte> b, bool whole) {
  constexpr std::size_t line = 64;
  if (whole || a.size() <= line) return std::memcmp(a.data(), b.data(), a.size()) == 0;
  for (std::size_t i = 0; i + line <= a.size(); i += block)
    if (std::memcmp(&a[i], &b[i], line) != 0) return false;
  return std::memcmp(&a[a.size() - line], &b[a.size() - line], line) == 0;
}

/// True if this can be the first message of ibv_rc_pingpong's client: each byte is 0x7b, except
/// that the first byte of a page may be zero. It must be zero if `with_zeros` is true, which means
/// that the client runs with --chk.
bool is_first_of_ibv_client(std::span<const std::byte> message, bool with_zeros) {
  constexpr std::byte fill{0x7b};
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t i = 0; i < message.size(); ++i) {
    const bool may_be_zero = i % page == 0;
    const bool must_be_zero = may_be_zero && with_zeros;
    if (message[i] == fill ? must_be_zero : !may_be_zero || message[i] != std::byte{}) return false;
  }
  return true;
}

/// Plays the rounds over a connection on which the receives have been posted. The caller owns the
/// memory of the messages.
class game {
 public:
  game(const options& given, const script& lines, const memory_region<>& outgoing,
       const memory_region<access::local_write>& incoming, rc_pingpong::exchange& peer,
       connected_queue_pair<transport::rc> connected)
      : given_(given),
        lines_(lines),
        outgoing_(outgoing),
        incoming_(incoming),
        peer_(peer),
        queue_pair_(std::move(connected)) {}

  static constexpr std::uint64_t sending = 1, receiving = 2;

  transport_result<void> play() {
    if (given_.host) VERBSPP_TRYV(send());
    const std::uint32_t goal = given_.iterations.value();
    std::array<work_completion, 2> slots;
    while (sent_ < goal || received_ < goal) {
      VERBSPP_TRY(arrived, queue_pair_.send_completion_queue().poll(slots));
      if (arrived.empty())
        VERBSPP_TRYV(nothing_came());
      else
        empty_polls_ = 0;
      for (const work_completion& each : arrived) VERBSPP_TRYV(take(each));
    }
    return success();
  }

 private:
  result<void> send() {
    busy_ = true;
    my_turn_ = false;
    VERBSPP_TRY(message, outgoing_.gather(lines_.offset(started_++), given_.size.value()));
    return queue_pair_.post_send({.elements = message}, {.id = sending});
  }

  transport_result<void> take(const work_completion& completion) {
    const auto work = completion.get();
    if (!work.has_value())
      return work.error().with_operation(completion.wr_id() == sending ? work_operation::send
                                                                       : work_operation::receive);
    if (completion.wr_id() == sending) {
      busy_ = false;
      ++sent_;
    } else {
      VERBSPP_TRYV(check(work.value().byte_count().value_or(0)));
      VERBSPP_TRY(memory, incoming_.scatter());
      VERBSPP_TRYV(queue_pair_.post_receive({.elements = memory}, {.id = receiving}));
      my_turn_ = true;
      ++received_;
    }
    if (my_turn_ && !busy_ && started_ < given_.iterations.value()) VERBSPP_TRYV(send());
    return success();
  }

  result<void> check(std::uint32_t size) {
    if (size != given_.size.value())
      return error::mismatch("check message", "message size in bytes", given_.size.value(), size,
                             "give both ends the same --size");
    if (received_ == 0 && given_.ibv_exchange && !given_.host &&
        is_first_of_ibv_client(incoming_.bytes(), given_.check)) {
      peer_echoes_ = true;
      return success();
    }
    // The server of either program answers message i with message i; the client of
    // ibv_rc_pingpong continues with the message that it received.
    const std::uint32_t expected = peer_echoes_ ? received_ - 1 : received_;
    if (same(incoming_.bytes(), lines_.message(expected), given_.check)) return success();
    std::cerr << "message " << received_ + 1 << " of " << given_.iterations.value()
              << " is wrong\n";
    return error(
        error_kind::driver, "check message",
        "the data differs from the expected message: it was damaged in flight, or the ends have "
        "different options (including --check and ibv_rc_pingpong's --chk)");
  }

  /// A peer may die while this end has no request in flight that could fail. So this function
  /// checks the peer from time to time, rarely enough not to affect the measurement.
  result<void> nothing_came() {
    // If there are fewer processors than processes, the peer may be waiting for the processor of
    // this thread.
    constexpr std::uint32_t polls_per_yield = 32, polls_per_look = 1024;
    if (++empty_polls_ % polls_per_yield == 0) std::this_thread::yield();
    if (empty_polls_ % polls_per_look != 0) return success();
    if (empty_polls_ == polls_per_look) silent_since_ = clock_type::now();
    VERBSPP_TRYV(peer_.check_peer());
    const auto silence = clock_type::now() - silent_since_;
    if (silence < given_.patience()) return success();
    using std::chrono::milliseconds;
    const auto waited = std::chrono::ceil<milliseconds>(silence).count();
    const auto limit = std::chrono::floor<milliseconds>(given_.patience()).count();
    return error::above_limit("wait for the peer", "ms of silence",
                              static_cast<std::uint64_t>(waited), static_cast<std::uint64_t>(limit))
        .as(error_kind::timed_out,
            "the peer has exited, hangs or runs fewer --iters: see its own output; --timeout and "
            "--retries determine this limit");
  }

  const options& given_;
  const script& lines_;
  const memory_region<>& outgoing_;
  const memory_region<access::local_write>& incoming_;
  rc_pingpong::exchange& peer_;
  connected_queue_pair<transport::rc> queue_pair_;

  std::uint32_t started_ = 0, sent_ = 0, received_ = 0;
  bool busy_ = false;  // a send is outstanding
  bool my_turn_ = false;
  bool peer_echoes_ = false;
  std::uint64_t empty_polls_ = 0;
  clock_type::time_point silent_since_;
};

result<void> check_size(const options& given, const port_attributes& port) {
  const std::uint32_t limit = port.native().max_msg_sz;
  if (given.size.value() <= limit) return success();
  return error::above_limit("start", "message size, bytes", given.size.value(), limit,
                            "the port imposes this limit; choose a smaller --size");
}

/// Builds a queue pair with the GID index and the path MTU that the user has given. The builder's
/// defaults replace missing values.
template <class Builder>
auto build(const Builder& builder, const options& given) {
  const auto with_gid = [&](const auto& next) {
    return given.gid_index ? next.gid_index(*given.gid_index).build() : next.build();
  };
  return given.mtu ? with_gid(builder.path_mtu(*given.mtu)) : with_gid(builder);
}

void print_figures(const options& given, std::chrono::duration<double> time) {
  const double iterations = given.iterations.value();
  const double bytes = 2 * iterations * given.size.value();
  std::printf("%.0f bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, time.count(),
              bytes * 8 / time.count() / 1e6);
  std::printf("%.0f iters in %.2f seconds = %.2f usec/iter, latency %.2f usec (half of it)\n",
              iterations, time.count(), time.count() / iterations * 1e6,
              time.count() / iterations * 1e6 / 2);
}

result<tcp::connection> meet(const options& given) {
  if (given.host) return tcp::connection::connect(*given.host, given.tcp_port, given.patience());
  VERBSPP_TRY(listener, tcp::listener::open(given.tcp_port));
  return listener.accept(wait_limit::forever());
}

transport_result<void> run(const options& given) {
  VERBSPP_TRY(context, common::open(given.device));
  VERBSPP_TRY(port, given.port ? context.query_port(*given.port) : context.first_active_port());
  VERBSPP_TRYV(check_size(given, port));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  const std::uint32_t depth = given.receive_depth.value();
  VERBSPP_TRY(queue, completion_queue::create(context, depth + 1));

  // All receives can share one buffer, because the peer sends its next message only after it has
  // received this end's answer.
  VERBSPP_TRY(lines, script::write(given));
  VERBSPP_TRY(inbox, buffer::allocate(given.size.value()));
  VERBSPP_TRY(outgoing, register_memory(domain, lines.all()));
  VERBSPP_TRY(incoming, register_memory<access::local_write>(domain, inbox.bytes()));

  VERBSPP_TRY(prepared, build(build_queue_pair<transport::rc>()
                                  .protection_domain(domain)
                                  .completion_queue(queue)
                                  .access(access::local_write)
                                  .max_send_work_requests(1)
                                  .max_receive_work_requests(work_request_count::assume(depth))
                                  .max_send_elements(1)
                                  .max_receive_elements(1)
                                  .port(port.number())
                                  .service_level(given.service_level)
                                  .ack_timeout(given.ack_timeout)
                                  .ack_retry_count(given.retries),
                              given));
  VERBSPP_TRY(memory, incoming.scatter());
  for (std::uint32_t i = 0; i < depth; ++i)
    VERBSPP_TRYV(prepared.post_receive({.elements = memory}, {.id = game::receiving}));
  std::cout << "  local:  " << prepared.endpoint() << '\n' << std::flush;

  VERBSPP_TRY(connection, meet(given));
  rc_pingpong::exchange peer(std::move(connection), given);
  VERBSPP_TRY(connected, peer.connect(std::move(prepared)));

  const auto start = clock_type::now();
  game match(given, lines, outgoing, incoming, peer, std::move(connected));
  VERBSPP_TRYV(match.play());
  print_figures(given, clock_type::now() - start);
  VERBSPP_TRYV(peer.finish());
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = rc_pingpong::parse_options(argc, argv);
  if (!given) return 2;
  if (given->help) {
    std::cout << rc_pingpong::help_text;
    return 0;
  }
  const auto outcome = run(*given);
  if (outcome.has_value()) return 0;
  std::cerr << "02_rc_pingpong: " << outcome.error() << '\n';
  return 1;
}
