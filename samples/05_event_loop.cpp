// SPDX-License-Identifier: Apache-2.0
/// \file
/// A server that sleeps: one thread, one poll(2), two clients. Completions are reported by the file
/// descriptor of a completion channel, asynchronous events by the file descriptor of the context.
/// One type of asynchronous event reports that the shared receives of the connections are running
/// out.

#include <verbspp/verbspp.hpp>

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <iostream>
#include <span>
#include <string_view>
#include <utility>

namespace {

using namespace verbspp;

using client_end = connected_queue_pair<transport::rc>;
using server_end = connected_queue_pair<transport::rc, receive_queue_kind::shared>;

constexpr std::size_t message_size = 64;
constexpr std::size_t places = 16;      // for messages that arrive
constexpr std::uint32_t low_water = 4;  // the event is raised when fewer receives are left
constexpr std::size_t messages_per_client = 24;
constexpr int patience_in_milliseconds = 5000;

/// The places for received messages, and a list of the free ones.
class inbox {
 public:
  static result<inbox> create(const protection_domain& domain) {
    VERBSPP_TRY(memory, registered_buffer<>::allocate(domain, places * message_size));
    VERBSPP_TRY(receives, shared_receive_queue::create(domain, places));
    return inbox(std::move(memory), std::move(receives));
  }

  [[nodiscard]] const shared_receive_queue& receives() const { return receives_; }
  void give_back(std::uint64_t place) { free_[free_places_++] = place; }
  [[nodiscard]] bool has_free_places() const { return free_places_ != 0; }

  /// Posts receives for the free places, with one doorbell, and then arms the event for the next
  /// shortage. If the event were armed before the receives were posted, it might be raised
  /// immediately.
  transport_result<void> refill() {
    const auto posted = receives_.post_receive_batch<places>([&](auto& batch) {
      for (const std::uint64_t place : std::span(free_).first(free_places_))
        batch.post_receive(
            {.elements = memory_.region().scatter_unchecked(place * message_size, message_size)},
            {.id = place});
    });
    if (posted.has_error()) return posted.error().cause();
    std::cout << "posted " << free_places_ << " receives\n";
    free_places_ = 0;
    VERBSPP_TRYV(receives_.arm_limit(low_water));
    return success();
  }

 private:
  inbox(registered_buffer<> memory, shared_receive_queue receives)
      : memory_(std::move(memory)), receives_(std::move(receives)) {
    for (std::uint64_t place = 0; place < places; ++place) give_back(place);
  }

  registered_buffer<> memory_;
  shared_receive_queue receives_;
  std::array<std::uint64_t, places> free_{};
  std::size_t free_places_ = 0;
};

/// The two ends of a connection. Both are in this process, so that the sample is self-contained.
struct connection {
  client_end client;
  server_end server;

  static result<connection> create(const protection_domain& domain,
                                   const completion_queue& client_queue,
                                   const completion_queue& server_queue,
                                   const shared_receive_queue& receives) {
    const auto builder =
        build_queue_pair<transport::rc>().protection_domain(domain).access(access::local_write);
    VERBSPP_TRY(
        client,
        builder.completion_queue(client_queue).max_send_work_requests(messages_per_client).build());
    VERBSPP_TRY(server,
                builder.completion_queue(server_queue).shared_receive_queue(receives).build());
    const endpoint client_address = client.endpoint();
    const endpoint server_address = server.endpoint();
    VERBSPP_TRY(connected_client, std::move(client).handshake(server_address));
    VERBSPP_TRY(connected_server, std::move(server).handshake(client_address));
    return connection{std::move(connected_client), std::move(connected_server)};
  }
};

/// Takes all available completions. Requests the next event first, so that no completion is missed:
/// those that arrive after the request raise an event, and the earlier ones are found here.
transport_result<std::size_t> take_messages(const waitable_completion_queue& queue,
                                            inbox& messages) {
  VERBSPP_TRYV(queue.request_notification());
  std::size_t count = 0;
  for (std::array<work_completion, 8> slots;;) {
    VERBSPP_TRY(arrived, queue.poll(slots));
    if (arrived.empty()) return count;
    for (const work_completion& completion : arrived) {
      VERBSPP_TRYV(completion.get());
      messages.give_back(completion.wr_id());
      ++count;
    }
  }
}

transport_result<void> serve(const context& device, const completion_channel& channel,
                             inbox& messages, std::size_t expected) {
  std::array<pollfd, 2> watched{
      {{.fd = channel.file_descriptor(), .events = POLLIN, .revents = 0},
       {.fd = device.async_event_file_descriptor(), .events = POLLIN, .revents = 0}}};
  bool is_low = false;
  for (std::size_t received = 0; received < expected;) {
    const int ready = ::poll(watched.data(), watched.size(), patience_in_milliseconds);
    if (ready < 0 && errno != EINTR) return error::from_errno(errno, "poll");
    if (ready == 0)
      return error(error_kind::timed_out, "wait for messages", "the clients have stopped sending");
    for (;;) {
      VERBSPP_TRY(queue, channel.poll());
      if (!queue) break;
      VERBSPP_TRY(taken, take_messages(*queue, messages));
      received += taken;
    }
    for (;;) {
      VERBSPP_TRY(event, device.poll_async_event());
      if (!event) break;
      std::cout << *event << '\n';
      if (event->type() == async_event_type::shared_receive_queue_limit_reached) is_low = true;
    }
    // The event may be reported before the completions of the messages that caused it.
    if (is_low && messages.has_free_places()) {
      VERBSPP_TRYV(messages.refill());
      is_low = false;
    }
  }
  std::cout << expected << " messages arrived\n";
  return success();
}

/// Returns the error of the first send that failed. Sends that have not completed are ignored.
transport_result<void> check_sends(const completion_queue& queue) {
  for (std::array<work_completion, 8> slots;;) {
    VERBSPP_TRY(arrived, queue.poll(slots));
    if (arrived.empty()) return success();
    for (const work_completion& completion : arrived) VERBSPP_TRYV(completion.get());
  }
}

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(device, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(device));
  VERBSPP_TRY(channel, completion_channel::create(device));
  VERBSPP_TRY(arrivals, waitable_completion_queue::create(channel, 2 * places));
  VERBSPP_TRY(departures, completion_queue::create(device, 2 * messages_per_client));
  VERBSPP_TRY(messages, inbox::create(domain));
  VERBSPP_TRYV(messages.refill());
  VERBSPP_TRYV(arrivals.request_notification());
  VERBSPP_TRY(first, connection::create(domain, departures, arrivals, messages.receives()));
  VERBSPP_TRY(second, connection::create(domain, departures, arrivals, messages.receives()));

  std::array<char, message_size> text{"hello, server"};
  VERBSPP_TRY(outgoing, register_memory(domain, text));
  for (connection* each : {&first, &second}) {
    const auto posted = each->client.post_batch<messages_per_client>([&](auto& batch) {
      for (std::size_t i = 0; i < messages_per_client; ++i)
        batch.post_send({.elements = outgoing.gather_unchecked(0, message_size)});
    });
    if (posted.has_error()) return posted.error().cause();
  }
  const auto served = serve(device, channel, messages, 2 * messages_per_client);
  // If the clients have stopped sending, the completions of their sends may contain the reason.
  VERBSPP_TRYV(check_sends(departures));
  return served;
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
