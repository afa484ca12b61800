// SPDX-License-Identifier: Apache-2.0
/// \file
/// Copies a file between two processes by RDMA writes, several in flight. If one process is killed
/// and started again, the copy continues where it stopped.
///
/// The server offers a window of memory, with a place for each write in flight. The client writes a
/// chunk into each place, with immediate data that notifies the server. The server saves the chunk,
/// and sends a message that the place is free. A TCP connection transfers the data that is needed
/// before and after the copy, and shows immediately when the other process has exited.

#include "common/open.hpp"
#include "common/tcp.hpp"
#include "rcopy/file.hpp"
#include "rcopy/options.hpp"
#include "rcopy/progress.hpp"
#include <verbspp/channel.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;
using rcopy::checksum;
using rcopy::file;
using rcopy::options;
using clock_type = std::chrono::steady_clock;

constexpr access_flags window_rights = access::local_write | access::remote_write;
using window_memory = remote_memory<access::remote_write>;
using chunk_buffer = registered_buffer<>;

/// A stop token that requests a stop when the peer's process has exited. The kernel closes the
/// sockets of a process however the process ends.
struct peer_has_gone {
  const tcp::connection* peer;
  [[nodiscard]] bool stop_requested() const noexcept { return peer->is_closed_by_peer(); }
};

result<void> send_number(const tcp::connection& peer, std::uint64_t number) {
  std::array<std::byte, sizeof number> bytes{};
  for (std::byte& each : bytes) {
    each = std::byte(number & 0xff);
    number >>= 8;
  }
  return peer.send(bytes);
}

result<std::uint64_t> receive_number(const tcp::connection& peer, const wait_limit& limit) {
  std::array<std::byte, sizeof(std::uint64_t)> bytes{};
  VERBSPP_TRYV(peer.receive(bytes, limit));
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    number |= std::to_integer<std::uint64_t>(bytes[i]) << 8 * i;
  return number;
}

/// Converts a number to the type that errors store.
constexpr std::int64_t signed_of(std::uint64_t number) { return static_cast<std::int64_t>(number); }

/// The part that both ends have in common. The same object is used for all connections of a copy.
class copy_end {
 public:
  copy_end(const options& given, channel&& peer) : given_(given), peer_(std::move(peer)) {}

 protected:
  [[nodiscard]] std::uint64_t places() const noexcept { return given_.in_flight.value(); }
  [[nodiscard]] std::uint64_t chunk() const noexcept { return given_.chunk.value(); }
  [[nodiscard]] std::size_t place_of(std::uint64_t number) const noexcept {
    return number % places();
  }

  /// Prepares a new connection, and aborts outstanding requests of the previous one.
  result<endpoint> prepare() {
    VERBSPP_TRY(own, peer_.renew());
    messages_.clear();
    // A receive needs no memory here, because a write with immediate data does not use the memory
    // of its receive, and the messages have no bytes.
    for (std::uint64_t i = 0; i < places(); ++i) {
      VERBSPP_TRY(message, peer_.post_receive({}));
      messages_.push_back(std::move(message));
    }
    return own;
  }
  /// Waits for the message with this number; messages are numbered in the order of arrival.
  transport_result<completed_work> next_message(std::uint64_t number, const wait_limit& limit) {
    VERBSPP_TRY(message, messages_[place_of(number)].wait(limit));
    VERBSPP_TRY(again, peer_.post_receive({}));
    messages_[place_of(number)] = std::move(again);
    return message;
  }

  /// Passes a result on. If it is an error, records that a new connection would not help.
  template <class Value>
  result<Value> own(result<Value> outcome) {
    if (outcome.has_error()) is_own_fault_ = true;
    return outcome;
  }
  /// If the copy continues after this failure, reports the failure and returns true.
  bool goes_on_after(const error& failure, const char* peer) {
    if (is_own_fault_ || failure == error_kind::mismatch || clock_type::now() >= deadline_)
      return false;
    std::cerr << "11_rcopy: lost the " << peer << ", waiting for it: " << failure << '\n';
    return true;
  }

  const options& given_;
  clock_type::time_point deadline_ = clock_type::now() + std::chrono::seconds(given_.limit.value());
  bool is_own_fault_ = false;
  channel peer_;
  std::vector<pending<>> messages_;
};

class client : public copy_end {
 public:
  client(const options& given, protection_domain domain, channel&& peer, file source)
      : copy_end(given, std::move(peer)), domain_(std::move(domain)), source_(std::move(source)) {}

  transport_result<void> run() {
    for (;;) {
      const auto server = tcp::connection::connect(*given_.host, given_.tcp_port, deadline_);
      if (server.has_value()) {
        const auto outcome = send_over(server.value());
        if (outcome.has_value() || !goes_on_after(outcome.error(), "server")) return outcome;
      } else if (server.error() == error_kind::not_found || clock_type::now() >= deadline_) {
        return server.error();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

 private:
  using part = buffer_part<chunk_buffer>;

  transport_result<void> send_over(const tcp::connection& server) {
    VERBSPP_TRY(size, own(source_.size()));
    VERBSPP_TRY(local, prepare());
    VERBSPP_TRYV(server.send(local.encode()));
    VERBSPP_TRYV(send_number(server, size));
    VERBSPP_TRY(remote, tcp::receive_object<endpoint>(server, deadline_));
    VERBSPP_TRY(window, tcp::receive_object<window_memory>(server, deadline_));
    VERBSPP_TRY(there, receive_number(server, deadline_));
    VERBSPP_TRY(sum_there, receive_number(server, deadline_));
    if (window.length() != places() * chunk())
      return error::mismatch("copy", "size of the window in bytes", signed_of(places() * chunk()),
                             signed_of(window.length()),
                             "give both ends the same --in-flight and --chunk");
    VERBSPP_TRYV(peer_.handshake(remote));

    // Continues after the server's data if that data is the beginning of this file; otherwise
    // starts at the beginning.
    VERBSPP_TRY(sum, own(source_.sum(std::min(there, size))));
    const std::uint64_t first = there <= size && sum.value() == sum_there ? there : 0;
    if (first == 0) sum = checksum();
    std::cerr << "11_rcopy: sending from byte " << first << " of " << size << '\n';
    VERBSPP_TRYV(send_number(server, first));
    VERBSPP_TRYV(write_all(window, first, size, sum, {deadline_, peer_has_gone{&server}}));

    VERBSPP_TRYV(send_number(server, sum.value()));
    VERBSPP_TRY(is_right, receive_number(server, deadline_));
    if (is_right == 0)
      return own(result<void>(error(error_kind::driver, "copy",
                                    "the server received data that differs from the client's")));
    std::printf("%" PRIu64 " byte%s, checksum %016" PRIx64 "\n", size, size == 1 ? "" : "s",
                sum.value());
    return success();
  }

  transport_result<void> write_all(const window_memory& window, std::uint64_t first,
                                   std::uint64_t size, checksum& sum, const wait_limit& limit) {
    rcopy::progress bar(first, size);
    const auto start = clock_type::now();
    std::vector<pending<part>> writes;
    std::uint64_t number = 0;
    for (std::uint64_t at = first; at < size; ++number) {
      VERBSPP_TRY(buffer, free_buffer(number, writes, limit));
      const std::size_t length = std::min(chunk(), size - at);
      VERBSPP_TRYV(own(source_.read(at, {buffer.data(), length})));
      sum.add({buffer.data(), length});
      // The write owns the buffer, so the buffer can't be refilled before the write has finished.
      VERBSPP_TRY(content, std::move(buffer).part(0, length));
      VERBSPP_TRY(place, window.slice(place_of(number) * chunk(), length));
      VERBSPP_TRY(write, peer_.post_write(std::move(content),
                                          {.remote = place, .immediate = immediate_data(0)}));
      if (number < places())
        writes.push_back(std::move(write));
      else
        writes[place_of(number)] = std::move(write);
      at += length;
      bar.show(at);
      if (given_.rate)
        std::this_thread::sleep_until(
            start + std::chrono::microseconds((at - first) / given_.rate->value()));
    }
    for (std::uint64_t i = number - std::min(number, places()); i < number; ++i)
      VERBSPP_TRYV(next_message(i, limit));
    return success();
  }

  /// Returns a buffer for the chunk with this number. The chunk's place in the window is then free,
  /// too.
  transport_result<chunk_buffer> free_buffer(std::uint64_t number,
                                             std::vector<pending<part>>& writes,
                                             const wait_limit& limit) {
    if (number < places()) {
      VERBSPP_TRY(fresh, own(chunk_buffer::allocate(domain_, chunk())));
      return fresh;
    }
    VERBSPP_TRYV(next_message(number - places(), limit));
    auto [written, content] = writes[place_of(number)].wait(limit);
    VERBSPP_TRYV(written);
    return std::move(content).buffer();
  }

  protection_domain domain_;
  file source_;
};

class server : public copy_end {
 public:
  server(const options& given, channel&& peer, registered_buffer<window_rights> window)
      : copy_end(given, std::move(peer)), window_(std::move(window)) {}

  transport_result<void> run() {
    VERBSPP_TRY(listener, tcp::listener::open(given_.tcp_port));
    for (;;) {
      VERBSPP_TRY(client, listener.accept(deadline_));
      const auto outcome = receive_over(client);
      if (outcome.has_value() || !goes_on_after(outcome.error(), "client")) return outcome;
    }
  }

 private:
  transport_result<void> receive_over(const tcp::connection& client) {
    VERBSPP_TRY(remote, tcp::receive_object<endpoint>(client, deadline_));
    VERBSPP_TRY(size, receive_number(client, deadline_));
    VERBSPP_TRY(target, own(file::open_to_write(given_.file + ".part")));
    VERBSPP_TRY(there, own(target.size()));
    VERBSPP_TRY(sum, own(target.sum(there)));
    VERBSPP_TRY(local, prepare());
    VERBSPP_TRYV(peer_.handshake(remote));
    VERBSPP_TRY(memory, window_.remote());
    VERBSPP_TRYV(client.send(local.encode()));
    VERBSPP_TRYV(client.send(memory.encode()));
    VERBSPP_TRYV(send_number(client, there));
    VERBSPP_TRYV(send_number(client, sum.value()));

    // The client replies with the position where it continues. If this position differs from the
    // length of the data here, the data is not the beginning of the client's file, and is
    // discarded.
    VERBSPP_TRY(first, receive_number(client, deadline_));
    if (first != there) {
      VERBSPP_TRYV(own(target.truncate(0)));
      sum = checksum();
      first = 0;
    }
    VERBSPP_TRYV(save_all(target, first, size, sum, {deadline_, peer_has_gone{&client}}));

    VERBSPP_TRY(sum_there, receive_number(client, deadline_));
    const bool is_right = sum_there == sum.value();
    if (is_right) {
      VERBSPP_TRYV(own(target.sync()));
      VERBSPP_TRYV(own(rcopy::rename(given_.file + ".part", given_.file)));
    } else {
      VERBSPP_TRYV(own(target.truncate(0)));
    }
    VERBSPP_TRYV(send_number(client, is_right ? 1 : 0));
    if (is_right) return success();
    return own(result<void>(error(error_kind::driver, "copy",
                                  "the data received differs from the data that the client sent")));
  }

  transport_result<void> save_all(const file& target, std::uint64_t first, std::uint64_t size,
                                  checksum& sum, const wait_limit& limit) {
    std::vector<pending<>> answers;
    std::uint64_t number = 0;
    for (std::uint64_t at = first; at < size; ++number) {
      const std::size_t place = place_of(number);
      VERBSPP_TRY(arrived, next_message(number, limit));
      const std::size_t length = arrived.byte_count().value_or(0);
      if (length != std::min(chunk(), size - at))
        return error::mismatch("copy", "size of the chunk in bytes",
                               signed_of(std::min(chunk(), size - at)), signed_of(length),
                               "give both ends the same --in-flight and --chunk");
      const std::span<const std::byte> content(window_.data() + place * chunk(), length);
      VERBSPP_TRYV(own(target.write(at, content)));
      sum.add(content);
      at += length;
      // Notifies the client that the place is free.
      if (number >= places()) VERBSPP_TRYV(answers[place].wait(limit));
      VERBSPP_TRY(answer, peer_.post_send({.immediate = immediate_data(0)}));
      if (number < places())
        answers.push_back(std::move(answer));
      else
        answers[place] = std::move(answer);
    }
    return success();
  }

  registered_buffer<window_rights> window_;
};

transport_result<void> run(const options& given) {
  VERBSPP_TRY(context, common::open(given.device));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  const auto depth = work_request_count::assume(given.in_flight.value());
  // Waits may be long if the other end is slow, so waiting threads sleep.
  VERBSPP_TRY(prepared, domain.build_channel()
                            .waiting(wait_mode::spin_then_sleep(std::chrono::microseconds(20)))
                            .max_send_work_requests(depth)
                            .max_receive_work_requests(depth)
                            .build());
  channel peer(std::move(prepared));
  if (given.host) {
    VERBSPP_TRY(source, file::open_to_read(given.file));
    return client(given, domain, std::move(peer), std::move(source)).run();
  }
  VERBSPP_TRY(window, registered_buffer<window_rights>::allocate(
                          domain, std::size_t{given.in_flight.value()} * given.chunk.value()));
  return server(given, std::move(peer), std::move(window)).run();
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = rcopy::parse_options(argc, argv);
  if (!given) return 2;
  if (given->help) {
    std::cout << rcopy::help_text;
    return 0;
  }
  const auto outcome = run(*given);
  if (outcome.has_value()) return 0;
  std::cerr << "11_rcopy: " << outcome.error() << '\n';
  return 1;
}
