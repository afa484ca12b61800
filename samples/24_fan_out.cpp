// SPDX-License-Identifier: Apache-2.0
/// \file
/// A fan-out: reads from 100 peers at the same time, with one limit for all, and takes the first
/// ten answers. The coroutines that are still waiting are then destroyed, while the device may
/// still write to their buffers. The peers are in this program.

#include <verbspp/coroutine.hpp>

#include <algorithm>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr std::size_t peers = 100;
constexpr std::size_t wanted = 10;

/// A coroutine that starts immediately. A coroutine type of another library can be used as well.
class routine {
 public:
  struct promise_type {
    routine get_return_object() { return routine(handle::from_promise(*this)); }
    static std::suspend_never initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(const transport_result<void>& returned) { result = returned; }
    [[noreturn]] static void unhandled_exception() { std::terminate(); }
    std::optional<transport_result<void>> result{};
  };

  routine(routine&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  routine& operator=(routine&&) = delete;
  ~routine() {
    if (handle_) handle_.destroy();
  }
  [[nodiscard]] const std::optional<transport_result<void>>& result() const {
    return handle_.promise().result;
  }

 private:
  using handle = std::coroutine_handle<promise_type>;
  explicit routine(handle started) : handle_(started) {}
  handle handle_;
};

/// A peer's memory, and both ends of the connection to it.
struct peer {
  registered_buffer<access::local_write | access::remote_read> memory;
  channel theirs;
  channel ours;
};

result<peer> connect(const protection_domain& domain, const channel_hub& hub, std::uint64_t value) {
  VERBSPP_TRY(memory, registered_buffer < access::local_write |
                          access::remote_read > ::allocate(domain, sizeof value));
  std::memcpy(memory.data(), &value, sizeof value);
  VERBSPP_TRY(theirs, domain.build_channel().access(access::remote_read).build());
  VERBSPP_TRY(ours, domain.build_channel().hub(hub).max_send_work_requests(8).build());
  const endpoint their_end = theirs.endpoint();
  const endpoint our_end = ours.endpoint();
  VERBSPP_TRY(their_channel, std::move(theirs).handshake(our_end));
  VERBSPP_TRY(our_channel, std::move(ours).handshake(their_end));
  return peer{std::move(memory), std::move(their_channel), std::move(our_channel)};
}

/// Reads a peer's value. The request owns the buffer, so the coroutine may be destroyed at any
/// time.
routine read_from(channel& link, registered_buffer<> into, remote_memory<access::remote_read> from,
                  wait_limit limit, std::vector<std::uint64_t>& answers) {
  auto [read, filled] = co_await link.async_read(std::move(into), {.remote = from}, limit);
  VERBSPP_CO_TRYV(read);
  std::memcpy(&answers.emplace_back(), filled.data(), sizeof(std::uint64_t));
  co_return success();
}

transport_result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(hub, channel_hub::create(domain, {.channels = peers, .waiting = wait_mode::sleep()}));
  std::vector<peer> all;
  for (std::uint64_t i = 0; i < peers; ++i) {
    VERBSPP_TRY(made, connect(domain, hub, i * i));
    all.push_back(std::move(made));
  }
  event_loop loop;
  const auto poll = [&]() -> routine {
    for (;;) {
      VERBSPP_CO_TRYV(co_await loop.async_ready(hub));
      VERBSPP_CO_TRYV(hub.poll());  // resumes the coroutines that read
    }
  };
  const routine polling = poll();
  const wait_limit limit = 5s;
  std::vector<std::uint64_t> answers;
  std::vector<routine> reads;
  for (peer& each : all) {
    VERBSPP_TRY(into, registered_buffer<>::allocate(domain, sizeof(std::uint64_t)));
    VERBSPP_TRY(from, each.memory.remote());
    reads.push_back(read_from(each.ours, std::move(into), from, limit, answers));
  }
  while (answers.size() < wanted && !limit.has_passed()) VERBSPP_TRYV(loop.run_once(limit));
  answers.resize(std::min(answers.size(), wanted));
  reads.clear();  // the requests in flight keep their buffers
  std::cout << answers.size() << " answers:";
  for (const std::uint64_t each : answers) std::cout << ' ' << each;
  std::cout << '\n';
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
