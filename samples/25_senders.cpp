// SPDX-License-Identifier: Apache-2.0
/// \file
/// Senders without a library of senders: one thread polls a hub, and another waits for a write, a
/// read and a receive. No message arrives, so the receive is stopped. The peer is in this program.

#include <verbspp/channel.hpp>
#include <verbspp/sender.hpp>

#include <array>
#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

using outcome = transport_result<completed_work>;
constexpr access_flags rights = access::local_write | access::remote_read | access::remote_write;
constexpr std::string_view text = "written and read by senders";

/// The outcome of an operation, for the thread that waits for it and may stop it.
struct awaited_outcome {
  void set(const outcome& completed) {
    const std::lock_guard lock(mutex);
    value = completed;
    is_set.notify_one();  // under the lock, because the waiting thread destroys this object
  }
  /// \returns nothing if the operation has not completed in time
  [[nodiscard]] std::optional<outcome> wait(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex);
    is_set.wait_for(lock, patience, [this] { return value.has_value(); });
    return value;
  }

  std::mutex mutex{};
  std::condition_variable is_set{};
  std::optional<outcome> value{};
  std::stop_source stop{};
};

/// The receiver that is connected to the sender of a channel's request.
struct receiver {
  void set_value(const completed_work& done) && noexcept { to->set(done); }
  void set_error(const transport_error& failed) && noexcept { to->set(failed); }
  void set_stopped() && noexcept { to->set(error(error_kind::cancelled, "sync_wait", "stopped")); }

  struct environment {
    std::stop_token stop;
    std::stop_token query(execution::get_stop_token_t /*query*/) const noexcept { return stop; }
  };
  environment get_env() const noexcept { return {to->stop.get_token()}; }

  awaited_outcome* to;
};

/// The receiver of a scheduler's sender. It starts an operation.
template <class Operation>
struct starter {
  void set_value() && noexcept { next->start(); }
  void set_stopped() && noexcept {}  // is not called, because this receiver has no stop token

  Operation* next;
};

/// Starts an operation on the thread that polls the hub, and waits until it has completed. Requests
/// a stop if it has not completed after `patience`.
template <class Sender>
outcome sync_wait(const channel_hub& hub, const Sender& work,
                  std::chrono::milliseconds patience = 30s) {
  awaited_outcome done;
  auto operation = work.connect(receiver{&done});
  auto beginning = hub_scheduler(hub).schedule().connect(starter<decltype(operation)>{&operation});
  beginning.start();
  std::optional<outcome> completed;
  while (!(completed = done.wait(patience))) done.stop.request_stop();
  return *completed;
}

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(hub, channel_hub::create(domain, {.waiting = wait_mode::sleep()}));
  VERBSPP_TRY(first, domain.build_channel().hub(hub).max_inline_data(64).build());
  VERBSPP_TRY(second, domain.build_channel().access(rights).build());
  VERBSPP_TRY(link, std::move(first).handshake(second.endpoint()));
  VERBSPP_TRY(peer, std::move(second).handshake(link.endpoint()));
  VERBSPP_TRY(theirs, registered_buffer<rights>::allocate(domain, text.size()));
  VERBSPP_TRY(remote, theirs.remote());
  VERBSPP_TRY(buffer,
              (registered_buffer<access::local_write, char>::allocate(domain, text.size())));
  VERBSPP_TRY(ours, std::move(buffer).share());
  std::jthread poller([&](const std::stop_token& stop) {
    std::array<arrival, 1> news;
    while (!stop.stop_requested()) {
      static_cast<void>(hub.wait(news, stop));  // ends on news or a stop request
      link.poll();                              // completes operations
    }
  });
  const auto write = as_sender(
      [&] { return link.async_write({.elements = inline_payload(text), .remote = remote}); });
  const auto read =
      as_sender([&] { return link.async_read({.elements = ours, .remote = remote}); });
  const auto receive = as_sender([&] { return link.async_receive({.elements = ours}); });
  VERBSPP_TRYV(sync_wait(hub, write));
  VERBSPP_TRYV(sync_wait(hub, read));
  std::cout << std::string_view(ours.data(), text.size()) << '\n';
  const outcome received = sync_wait(hub, receive, 10ms);
  if (received.has_value())
    return error(error_kind::mismatch, "receive", "a message arrived, but none was sent");
  std::cout << received.error() << '\n';
  VERBSPP_TRYV(sync_wait(hub, write));  // the stop has ended only the wait
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
