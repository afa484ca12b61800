// SPDX-License-Identifier: Apache-2.0
/// \file
/// The code of docs/guide/cookbook.md, which test/cookbook.cpp runs.

#include <verbspp/channel.hpp>
#include <verbspp/exchange.hpp>

#include <poll.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <istream>
#include <memory>
#include <numeric>
#include <span>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace guide {

using namespace verbspp;
using namespace std::chrono_literals;

// Send a file

/// Writes a file into the window of the peer, with up to eight blocks in flight. The window has to
/// be as large as the file. The channel was built with `.max_inline_data(8)`.
transport_result<std::uint64_t> send_file(channel& peer, std::istream& file,
                                          const protection_domain& domain,
                                          const remote_memory<access::remote_write>& window) {
  constexpr std::size_t block = 1 << 20;
  constexpr std::size_t in_flight = 8;
  std::vector<registered_buffer<>> buffers;
  for (std::size_t i = 0; i < in_flight; ++i) {
    VERBSPP_TRY(buffer, registered_buffer<>::allocate(domain, block));
    buffers.push_back(std::move(buffer));
  }
  // Destroyed before the buffers. A handle that is destroyed waits for its request.
  std::vector<pending<>> writes(in_flight);

  std::uint64_t sent = 0;
  for (std::size_t turn = 0;; ++turn) {
    auto& buffer = buffers[turn % in_flight];
    auto& write = writes[turn % in_flight];
    if (write.has_request()) VERBSPP_TRYV(write.wait());
    file.read(reinterpret_cast<char*>(buffer.data()), block);
    const auto length = static_cast<std::size_t>(file.gcount());
    if (length == 0 && file.eof()) break;
    if (length == 0) return error(error_kind::driver, "read the file", "the stream has failed");
    VERBSPP_TRY(from, buffer.gather(0, length));
    VERBSPP_TRY(to, window.slice(sent, length));
    VERBSPP_TRY(posted, peer.post_write({.elements = from, .remote = to}));
    write = std::move(posted);
    sent += length;
  }
  for (auto& write : writes)
    if (write.has_request()) VERBSPP_TRYV(write.wait());
  // The peer does not notice writes, so a message with the length of the file follows them.
  VERBSPP_TRYV(peer.send({.elements = inline_payload(sent)}));
  return sent;
}

using file_window = registered_buffer<access::local_write | access::remote_write>;
using length_buffer = registered_buffer<access::local_write, std::uint64_t>;

/// Receives a file of up to `largest` bytes from the program at the other end of a socket.
transport_result<file_window> receive_file(int socket, const protection_domain& domain,
                                           std::size_t largest) {
  VERBSPP_TRY(window, file_window::allocate(domain, largest));
  VERBSPP_TRY(handle, window.remote());
  VERBSPP_TRY(empty, length_buffer::allocate(domain, 1));
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(finished, prepared.post_receive(std::move(empty)));
  VERBSPP_TRY(met, exchange(socket, std::move(prepared), handle, 10s));

  auto [received, length] = finished.wait(60s);
  VERBSPP_TRYV(received);
  std::cout << length[0] << " bytes arrived\n";
  VERBSPP_TRYV(met.channel.wait(10s));  // until the sender has closed its channel
  return window;
}

/// Writes a buffer in many small pieces. If the send queue has at least 32 places, every 16th write
/// is signaled, otherwise more of them.
transport_result<void> write_many(channel& peer, const registered_buffer<>& source,
                                  const remote_memory<access::remote_write>& target) {
  VERBSPP_TRYV(peer.stream(
      [&](channel_stream& stream) -> result<void> {
        for (std::size_t at = 0; at + 64 <= source.size(); at += 64) {
          VERBSPP_TRY(from, source.gather(at, 64));
          VERBSPP_TRY(to, target.slice(at, 64));
          VERBSPP_TRYV(stream.post_write({.elements = from, .remote = to}));
        }
        return success();
      },
      {.signal_every = 16}, 30s));
  return success();
}

// Send a structure

struct order {
  std::uint64_t number;
  double price;
};

/// Sends a structure. The channel was built with `.max_inline_data(sizeof(order))`.
transport_result<void> send_order(channel& peer, const order& sent) {
  VERBSPP_TRYV(peer.send({.elements = inline_payload(sent)}));
  return success();
}

/// Waits for a message, and copies a structure out of it.
result<order> receive_order(inbox& messages) {
  VERBSPP_TRY(message, messages.wait(5s));
  order received{};
  if (message.size() != sizeof(received))
    return error(error_kind::mismatch, "receive an order", "the message has another size");
  std::memcpy(&received, message.bytes().data(), sizeof(received));
  return received;
}

// Read a peer's table

struct row {
  std::uint64_t version;  // odd while the owner changes the row
  std::array<std::uint64_t, 6> content;
  std::uint64_t checksum;
};
using remote_table = remote_array<row, access::remote_read>;
using row_buffer = registered_buffer<access::local_write, row>;

std::uint64_t checksum_of(const row& seen) {
  return std::accumulate(
      seen.content.begin(), seen.content.end(), seen.version,
      [](std::uint64_t sum, std::uint64_t word) { return (sum ^ word) * 0x9e3779b97f4a7c15; });
}

/// Reads a row, and repeats the read until the copy is consistent.
transport_result<row> read_row(channel& owner, const remote_table& table, std::uint64_t index,
                               row_buffer& copy) {
  VERBSPP_TRY(remote, table.element(index));
  for (const wait_limit limit = 1s; !limit.has_passed();) {
    VERBSPP_TRYV(owner.read(copy, {.remote = remote}));
    const row& seen = copy[0];
    if (seen.version % 2 == 0 && seen.checksum == checksum_of(seen)) return seen;
  }
  return error(error_kind::busy, "read a row", "the owner changes it all the time");
}

/// Reads one field of a row.
transport_result<std::uint64_t> read_version(channel& owner, const remote_table& table,
                                             std::uint64_t index, row_buffer& copy) {
  VERBSPP_TRY(remote, table.element(index));
  VERBSPP_TRY(into, copy.scatter_field(0, &row::version));
  VERBSPP_TRYV(owner.read({.elements = into, .remote = remote.field(&row::version)}));
  return copy[0].version;
}

/// Takes the next number from a counter in the memory of the peer.
transport_result<std::uint64_t> take_ticket(
    channel& owner, const remote_memory<access::remote_atomic>& counter,
    registered_buffer<access::local_write, std::uint64_t>& before) {
  VERBSPP_TRY(word, remote_word::at(counter));
  VERBSPP_TRY(into, before.scatter(0, 1));
  VERBSPP_TRYV(owner.fetch_and_add({.result = into, .remote = word, .addend = 1}));
  return before[0];
}

/// Prepares the owner of a counter. `access` replaces the default rights of the channel, so this
/// call names reads and writes again.
result<prepared_channel> prepare_owner(const protection_domain& domain) {
  return domain.build_channel()
      .access(access::local_write | access::remote_read | access::remote_write |
              access::remote_atomic)
      .build();
}

// Several requests, one doorbell

/// Writes a record and its header with one doorbell.
transport_result<void> write_record(channel& peer, const gather_element& record,
                                    const remote_memory<access::remote_write>& to_record,
                                    const gather_element& header,
                                    const remote_memory<access::remote_write>& to_header) {
  VERBSPP_TRYV(peer.scope([&](channel_scope& scope) {
    return scope.post_batch<2>([&](auto& batch) {
      batch.post_write({.elements = record, .remote = to_record});
      batch.post_write({.elements = header, .remote = to_header});
    });
  }));
  return success();
}

// One event loop

/// Sleeps until there is work for a source, or another descriptor of the program is readable.
/// \returns false if the other descriptor is readable
template <EventSource Source>
result<bool> sleep_for(Source& source, int other) {
  VERBSPP_TRY(has_news, source.request_notification());
  if (has_news) return true;
  const wait_limit limit = source.deadline();
  const auto left = limit.remaining();
  const auto longest = std::chrono::ceil<std::chrono::milliseconds>(left.value_or(1h));
  std::array<pollfd, 2> watched{{{.fd = source.file_descriptor(), .events = POLLIN, .revents = 0},
                                 {.fd = other, .events = POLLIN, .revents = 0}}};
  if (::poll(watched.data(), watched.size(), static_cast<int>(longest.count())) < 0 &&
      errno != EINTR)
    return error::from_errno(errno, "poll");
  return watched[1].revents == 0;
}

/// Serves a channel, and another descriptor of the program, in one loop.
transport_result<void> run_loop(inbox& messages, int other) {
  for (;;) {
    VERBSPP_TRY(is_for_source, sleep_for(messages, other));
    if (!is_for_source) return success();
    while (auto next = messages.poll()) {
      VERBSPP_TRY(message, *std::move(next));
      std::cout << message.size() << " bytes arrived\n";
    }
  }
}

/// Serves the clients of a hub in the same way.
result<void> run_loop(hub_clients<std::uint32_t>& clients, int other) {
  for (;;) {
    VERBSPP_TRY(is_for_source, sleep_for(clients, other));
    if (!is_for_source) return success();
    for (;;) {
      VERBSPP_TRY(client, clients.poll());
      if (!client) break;
      while (auto request = client->next())
        VERBSPP_TRYV(client->link().post_send(std::move(*request)));
    }
  }
}

result<prepared_channel> prepare_to_sleep(const protection_domain& domain) {
  return domain.build_channel().waiting(wait_mode::sleep()).build();
}

// Owners of memory

/// The request owns the buffer, and returns it.
transport_result<void> send_owned(channel& peer, registered_buffer<>& buffer) {
  VERBSPP_TRY(work, peer.post_send(std::move(buffer)));
  // buffer is empty here; the memory is in `work`.
  auto [sent, returned] = work.wait();
  buffer = std::move(returned);
  VERBSPP_TRYV(sent);
  return success();
}

/// Several requests share the buffer. The handles may be dropped.
transport_result<void> send_shared(std::span<channel> peers, registered_buffer<> buffer) {
  VERBSPP_TRY(shared, std::move(buffer).share());
  for (channel& peer : peers) VERBSPP_TRYV(peer.post_send(shared));
  return success();
}

/// The requests borrow the buffer; the end of the scope waits for them.
transport_result<void> send_borrowed(channel& peer, const registered_buffer<>& buffer) {
  VERBSPP_TRYV(peer.scope([&](channel_scope& scope) -> result<void> {
    for (std::size_t at = 0; at + 256 <= buffer.size(); at += 256) {
      VERBSPP_TRY(part, buffer.gather(at, 256));
      VERBSPP_TRYV(scope.post_send({.elements = part}));
    }
    return success();
  }));
  return success();
}

/// The request keeps a place of a pool until it has finished.
result<void> send_message(channel& peer, const message_pool& pool, std::string_view text) {
  VERBSPP_TRY(message, pool.take());
  VERBSPP_TRYV(message.assign(std::as_bytes(std::span(text))));
  VERBSPP_TRYV(peer.post_send(std::move(message)));
  return success();
}

/// The text is copied into the request.
result<void> send_inline(channel& peer, std::string_view text) {
  VERBSPP_TRYV(peer.post_send({.elements = inline_payload(text)}));
  return success();
}

/// Sends memory that the program has allocated itself.
transport_result<void> send_own_memory(channel& peer, const protection_domain& domain,
                                       std::vector<std::byte>& bytes) {
  VERBSPP_TRY(region, register_memory(domain, bytes));
  VERBSPP_TRY(all, region.gather());
  VERBSPP_TRYV(peer.send({.elements = all}));
  return success();
}

// Revoke the access of a peer

constexpr access_flags lendable = access::local_write | access::window_bind;

/// Lets the peer write to a buffer until it says that it has finished, or the time is over.
transport_result<registered_buffer<lendable>> lend(channel& peer,
                                                   registered_buffer<lendable> buffer) {
  VERBSPP_TRY(lease, peer.lease<access::remote_write>(std::move(buffer)));
  VERBSPP_TRY(remote, lease.remote());
  VERBSPP_TRY(done, peer.post_receive({}));
  const auto handle = remote.encode();
  VERBSPP_TRYV(peer.send({.elements = inline_payload(handle)}));

  const auto end = std::chrono::steady_clock::now() + 2s;
  auto answer = done.poll();
  while (!answer && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
    answer = done.poll();
  }
  auto [revoked, returned] = std::move(lease).revoke();
  VERBSPP_TRYV(revoked);
  // The peer cannot write to the memory any more, whether it has finished or not.
  return std::move(returned);
}

// Time limits

transport_result<void> wait_in_several_ways(channel& peer, const registered_buffer<>& buffer,
                                            const std::stop_token& stop) {
  VERBSPP_TRYV(peer.send(buffer));      // the default of the channel
  VERBSPP_TRYV(peer.send(buffer, 2s));  // two seconds from now
  const wait_limit deadline(5s);        // one deadline for several calls
  VERBSPP_TRYV(peer.send(buffer, deadline));
  VERBSPP_TRYV(peer.send(buffer, deadline));
  VERBSPP_TRYV(peer.send(buffer, wait_limit(10s, stop)));  // a time, or a request to stop
  VERBSPP_TRYV(peer.send(buffer, wait_limit::forever()));
  return success();
}

result<prepared_channel> prepare_with_limits(const protection_domain& domain) {
  return domain.build_channel()
      .default_limit(5s)   // for waits without a limit
      .ack_timeout(20ms)   // rounded up to a value that the device knows, 34 ms
      .ack_retry_count(5)  // the device gives up after 6 x 34 ms, or up to four times that
      .rnr_retry_count(6)  // else a send waits for a receive until its own limit
      .build();
}

// A peer that dies

/// Sends, and connects again if that fails. `dial` returns a socket that leads to the peer.
template <class Dial>
transport_result<void> send_with_retries(channel& peer, const registered_buffer<>& buffer,
                                         Dial dial) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (peer.is_connected() && peer.send(buffer, 5s).has_value()) return success();
    if (const auto cause = peer.failure()) std::cerr << cause->message() << '\n';
    VERBSPP_TRY(socket, dial());
    VERBSPP_TRYV(peer.renew());
    VERBSPP_TRYV(exchange(socket.descriptor(), peer, 10s));
  }
  return error(error_kind::not_connected, "send with retries", "the peer does not answer");
}

// Stop on Ctrl-C

/// Returns a token through which SIGINT (Ctrl-C) or SIGTERM requests a stop. Call this function
/// before other threads start, because a thread inherits the blocked signals.
std::stop_token stopped_by_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::stop_source source;
  auto token = source.get_token();
  std::thread([signals, source]() mutable {
    int number = 0;
    ::sigwait(&signals, &number);
    source.request_stop();
  }).detach();
  return token;
}

// More than one thread

/// A thread that serves its own channel, until it is asked to stop.
void serve_alone(channel peer, const message_pool& pool, const std::stop_token& stop) {
  auto messages = inbox::open(peer, pool);
  while (messages.has_value()) {
    auto next = messages.value().wait(wait_limit(stop));
    if (!next.has_value()) return;
    if (!peer.post_send(std::move(next).assume_value()).has_value()) return;
  }
}

// Keep strangers out

/// Accepts one client that knows the secret.
template <class End>
auto accept_with_secret(const tcp_socket& socket, End prepared, std::span<const std::byte> secret) {
  return exchange(socket.descriptor(), std::move(prepared), 10s,
                  {.application = "my service",
                   .version = 1,
                   .secret = secret,
                   .role = exchange_role::accepting});
}

// Large buffers

/// Allocates memory near the device, in huge pages if the machine has some.
result<registered_buffer<>> allocate_large(const protection_domain& domain, std::size_t bytes) {
  VERBSPP_TRYV(bind_this_thread_near(domain.context(), numa_binding::as_far_as_possible));
  return registered_buffer<>::allocate(domain, bytes, {.huge_pages = true});
}

// See what happens

/// Prints a channel, and the events of the device; traces the objects that are created and
/// destroyed from now on, and reports destructors that fail.
void show(const channel& peer, const context& device) {
  std::cerr << peer << '\n';
  set_object_trace_handler([](const char* call, const void* object, std::uint32_t number) noexcept {
    std::cerr << call << ' ' << object << ' ' << number << '\n';
  });
  set_destroy_failure_handler([](const error& failure) noexcept { std::cerr << failure << '\n'; });
  while (true) {
    const auto event = device.poll_async_event();
    if (!event.has_value() || !event.value()) return;
    std::cerr << *event.value() << '\n';
  }
}

}  // namespace guide
