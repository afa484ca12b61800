// SPDX-License-Identifier: Apache-2.0
/// \file
/// A key-value store with values of 1 byte to 64 MiB. A call lends the service the memory of the
/// value. The bytes of small values are sent with the messages of the call; larger values are read
/// or written by RDMA. The program is the same for both. The handlers are coroutines, so one thread
/// serves all clients, and a client that does not react delays no other. If a client ends during a
/// call, the other clients are not affected.
///
/// The clients are processes. One client stores values again and again, until it is killed.

#include <verbspp/calls.hpp>
#include <verbspp/exchange.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <coroutine>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr auto patience = 30s;
constexpr exchange_options protocol{.application = "large values", .version = 1};

/// Stores a value, which the service reads from the memory that the call lends.
struct put {
  static constexpr std::uint16_t number = 1;
  static constexpr const char* name = "put";
  static constexpr access_flags lends = access::remote_read;
  using request = std::uint64_t;  // the key
  using answer = void;
};
/// Returns the size of a value. If the lent memory is large enough, the service also writes the
/// value there.
struct get {
  static constexpr std::uint16_t number = 2;
  static constexpr const char* name = "get";
  static constexpr access_flags lends = access::remote_write;
  using request = std::uint64_t;
  using answer = std::uint64_t;
};

/// The type of the handlers' coroutines, which destroy themselves when they end.
struct handler {
  struct promise_type {
    [[nodiscard]] static handler get_return_object() noexcept { return {}; }
    [[nodiscard]] static std::suspend_never initial_suspend() noexcept { return {}; }
    [[nodiscard]] static std::suspend_never final_suspend() noexcept { return {}; }
    static void return_void() noexcept {}
    [[noreturn]] static void unhandled_exception() noexcept { std::terminate(); }
  };
};

/// The values. One thread executes the calls, but while a call waits for the memory of its client,
/// another call may replace the value. So each access keeps its value alive.
class store {
 public:
  explicit store(const protection_domain& domain) : domain_(domain) {}

  handler put_value(received_call<put> call) {
    auto made = registered_buffer<>::allocate(domain_, call.lent_size());
    if (made.has_error()) co_return call.refuse(made.error());
    auto [read, value] = co_await call.async_read(std::move(made).value(), 0, patience);
    if (read.has_error()) co_return call.refuse(error(read.error()));
    auto shared = std::move(value).share();
    if (shared.has_error()) co_return call.refuse(shared.error());
    values_.insert_or_assign(call.request(), std::move(shared).value());
    static_cast<void>(call.answer());
  }
  handler get_value(received_call<get> call) {
    const auto found = values_.find(call.request());
    if (found == values_.end()) co_return call.refuse(error_kind::not_found, "there is no value");
    const std::uint64_t size = found->second.size();
    if (size <= call.lent_size()) {
      const result<void> written = co_await call.async_write(found->second, 0, patience);
      if (written.has_error()) co_return call.refuse(written.error());
    }
    static_cast<void>(call.answer(size));
  }

 private:
  protection_domain domain_;
  std::map<std::uint64_t, shared_buffer<>> values_{};
};

result<void> accept(service& serving, const protection_domain& domain, tcp_listener listener,
                    const std::stop_token& stop) {
  const auto prepare = [&]() noexcept -> result<exchange_offer<prepared_channel, std::uint32_t>> {
    VERBSPP_TRY(prepared, domain.build_channel().hub(serving.hub()).build());
    return exchange_offer{std::move(prepared), std::uint32_t{0}};
  };
  VERBSPP_TRY(acceptor, accept_exchanges<std::uint32_t>(std::move(listener), prepare,
                                                        {.exchange = protocol}));
  for (;;) {
    VERBSPP_TRY(next, acceptor.next(wait_limit(std::chrono::hours(24), stop)));
    VERBSPP_TRYV(serving.add(std::move(next.met.channel)));
  }
}

result<caller> connect(const protection_domain& domain, const std::string& port) {
  VERBSPP_TRY(prepared, domain.build_channel().build());
  VERBSPP_TRY(calls, caller::open(prepared));
  VERBSPP_TRY(socket, tcp_socket::connect("127.0.0.1", port, patience));
  VERBSPP_TRY(met, exchange<std::uint32_t>(socket.descriptor(), std::move(prepared),
                                           std::uint32_t{0}, patience, protocol));
  VERBSPP_TRYV((calls.start<put, get>(std::move(met.channel), patience)));
  return calls;
}

// Memory registered with window_bind can be lent through a memory window, usually without a system
// call.
using value_memory = registered_buffer<access::local_write | access::window_bind>;

/// Stores values of several sizes, and reads them again.
result<void> check(std::string_view device_name, const std::string& port) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(calls, connect(domain, port));
  for (std::size_t size = 1; size <= std::size_t{64} << 20; size *= 4) {
    VERBSPP_TRY(value, value_memory::allocate(domain, size));
    for (std::size_t i = 0; i < size; ++i) value[i] = static_cast<std::byte>(i * 7 + size);
    VERBSPP_TRYV(calls.call<put>(size, value, patience));
    VERBSPP_TRY(read, value_memory::allocate(domain, size));
    VERBSPP_TRY(stored, calls.call<get>(size, read, patience));
    if (stored != size || !std::ranges::equal(read, value))
      return error(error_kind::mismatch, "store", "a value differs from the one that was stored");
  }
  // A vector can be lent, too. The lent memory may be smaller than the value.
  std::vector<std::byte> small(8);
  VERBSPP_TRY(needed, calls.call<get>(4096, small, patience));
  if (needed != 4096) return error(error_kind::mismatch, "store", "the size is wrong");
  const caller_statistics counted = calls.statistics();
  std::cout << "lent: " << counted.lent_bytes << " bytes, of which " << counted.sent_bytes
            << " were sent in messages\n";
  return success();
}

/// Stores values until the process is killed.
result<void> store_without_end(std::string_view device_name, const std::string& port) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(calls, connect(domain, port));
  VERBSPP_TRY(value, value_memory::allocate(domain, std::size_t{1} << 20));
  for (;;) VERBSPP_TRYV(calls.call<put>(1'000'000, value, patience));
}

template <class Client>
pid_t start(Client client, std::string_view device_name, const std::string& port) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const result<void> ended = client(device_name, port);
  if (ended.has_error()) std::cerr << ended.error() << '\n';
  std::_Exit(ended.has_value() ? 0 : 1);
}

template <class Condition>
result<void> wait_until(Condition condition, const char* hint) {
  const wait_limit end(patience);
  while (!condition()) {
    if (end.has_passed()) return end.failure("store", hint);
    std::this_thread::sleep_for(1ms);
  }
  return success();
}

result<void> serve(std::string_view device_name, tcp_listener listener, pid_t checking,
                   pid_t endless) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  store values(domain);
  VERBSPP_TRY(
      serving,
      service::create(
          domain, {.clients = 8, .waiting = wait_mode::spin_then_sleep(20us)},
          handles<put>([&](received_call<put> call) { values.put_value(std::move(call)); }),
          handles<get>([&](received_call<get> call) { values.get_value(std::move(call)); })));
  std::vector<std::jthread> threads;
  threads.emplace_back([&](const std::stop_token& stop) {
    const auto ended = accept(serving, domain, std::move(listener), stop);
    if (ended.error() != error_kind::cancelled) std::cerr << ended.error() << '\n';
  });
  threads.emplace_back([&](const std::stop_token& stop) {
    if (const auto ended = serving.serve(stop); ended.has_error())
      std::cerr << ended.error() << '\n';
  });
  VERBSPP_TRYV(wait_until([&] { return serving.statistics().answers >= 20; },
                          "fewer than 20 calls were answered"));
  ::kill(endless, SIGKILL);
  int status = 0;
  ::waitpid(endless, nullptr, 0);
  ::waitpid(checking, &status, 0);
  // The sockets of both clients are closed, so the service removes the clients.
  VERBSPP_TRYV(wait_until([&] { return serving.clients() == 0; }, "a client has not been removed"));
  const service_statistics counted = serving.statistics();
  std::cout << counted.calls << " calls, " << counted.lanes << " lanes, " << serving.clients()
            << " clients left\n";
  if (status != 0) return error(error_kind::mismatch, "store", "a client has failed");
  return success();
}

result<void> run(std::string_view device_name) {
  VERBSPP_TRY(listener, tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  // The clients are forked before this process has threads.
  const pid_t checking = start(check, device_name, port);
  const pid_t endless = start(store_without_end, device_name, port);
  return serve(device_name, std::move(listener), checking, endless);
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
