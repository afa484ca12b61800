// SPDX-License-Identifier: Apache-2.0
/// \file
/// A key-value store that clients call. It answers most calls immediately. A client can also wait
/// for a key: the service keeps the call, and answers it when another client stores the key.
///
/// The clients are threads of this program, and connect by TCP. One client disconnects while its
/// call is in flight. Two others wait for a key that no client stores, until their limit, and then
/// for one that is stored.

#include <verbspp/calls.hpp>
#include <verbspp/exchange.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

/// A key with its value, in a request. In a decoded entry, the value refers to the bytes of the
/// message.
struct entry {
  std::uint64_t key;
  std::string_view value;
};

}  // namespace

template <>
struct verbspp::codec<entry> {
  static constexpr std::uint32_t size = verbspp::any_size;

  static result<std::size_t> encode(const entry& from, std::span<std::byte> into) noexcept {
    const std::size_t length = sizeof from.key + from.value.size();
    if (length > into.size())
      return error::above_limit("encode an entry", "size in bytes", length, into.size());
    std::memcpy(into.data(), &from.key, sizeof from.key);
    std::memcpy(into.data() + sizeof from.key, from.value.data(), from.value.size());
    return length;
  }
  static result<entry> decode(std::span<const std::byte> from) noexcept {
    entry made{};
    if (from.size() < sizeof made.key)
      return error(error_kind::invalid_input, "decode an entry", "it has no key");
    std::memcpy(&made.key, from.data(), sizeof made.key);
    const auto value = from.subspan(sizeof made.key);
    made.value = {reinterpret_cast<const char*>(value.data()), value.size()};
    return made;
  }
};

namespace {

using namespace verbspp;
using namespace std::chrono_literals;

constexpr auto patience = 30s;
constexpr exchange_options protocol{.application = "store", .version = 1};

struct put {
  static constexpr std::uint16_t number = 1;
  static constexpr const char* name = "put";
  using request = entry;
  using answer = void;
};
struct get {
  static constexpr std::uint16_t number = 2;
  static constexpr const char* name = "get";
  using request = std::uint64_t;
  using answer = bytes;
};
/// Like `get`, but waits until the key has a value.
struct wait_for {
  static constexpr std::uint16_t number = 3;
  static constexpr const char* name = "wait_for";
  using request = std::uint64_t;
  using answer = bytes;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// The entries, and the calls that wait for them. Several threads execute calls.
class store {
 public:
  void add(const entry& one) {
    const std::lock_guard guard(lock_);
    std::string& value = values_[one.key] = std::string(one.value);
    for (received_call<wait_for>& each : waiting_[one.key])
      static_cast<void>(each.answer(bytes_of(value)));
    waiting_.erase(one.key);
  }
  void find(received_call<get> call) {
    const std::lock_guard guard(lock_);
    const auto found = values_.find(call.request());
    if (found == values_.end()) return call.refuse(error_kind::not_found, "the key has no value");
    static_cast<void>(call.answer(bytes_of(found->second)));
  }
  void wait(received_call<wait_for> call) {
    const std::lock_guard guard(lock_);
    const auto found = values_.find(call.request());
    if (found == values_.end()) return waiting_[call.request()].push_back(std::move(call));
    static_cast<void>(call.answer(bytes_of(found->second)));
  }

 private:
  std::mutex lock_{};
  std::map<std::uint64_t, std::string> values_{};
  std::map<std::uint64_t, std::vector<received_call<wait_for>>> waiting_{};
};

/// Connects clients until a stop is requested.
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
  VERBSPP_TRYV((calls.start<put, get, wait_for>(std::move(met.channel), patience)));
  return calls;
}

/// Stores values, reads them again, and then stores the key for which the others wait.
result<void> fill(const protection_domain& domain, const std::string& port) {
  VERBSPP_TRY(calls, connect(domain, port));
  for (std::uint64_t key = 1; key <= 100; ++key) {
    const std::string value(key * 10, static_cast<char>('a' + key % 26));
    VERBSPP_TRYV(calls.call<put>({.key = key, .value = value}, patience));
    VERBSPP_TRY(read, calls.call<get>(key, patience));
    if (!std::ranges::equal(read.view(), bytes_of(value)))
      return error(error_kind::mismatch, "store", "a value differs from the one that was stored");
  }
  const auto missing = calls.call<get>(1000, patience);
  if (missing.has_value())
    return error(error_kind::mismatch, "store", "a key without a value was found");
  if (!is_refusal(missing.error())) return missing.error();
  std::cout << missing.error() << '\n';
  return calls.call<put>({.key = 500, .value = "at last"}, patience);
}

/// Waits for a key that another client stores.
result<void> wait_for_key(const protection_domain& domain, const std::string& port) {
  VERBSPP_TRY(calls, connect(domain, port));
  // No client stores this key, so the call ends at its limit. The connection and other calls are
  // not affected.
  const auto early = calls.call<wait_for>(501, 20ms);
  if (early.has_value()) return error(error_kind::mismatch, "store", "an unknown key was found");
  VERBSPP_TRY(value, calls.call<wait_for>(500, patience));
  if (!std::ranges::equal(value.view(), bytes_of("at last")))
    return error(error_kind::mismatch, "store", "the value is wrong");
  return success();
}

/// Disconnects while a call is in flight.
result<void> leave_early(const protection_domain& domain, const std::string& port) {
  VERBSPP_TRY(calls, connect(domain, port));
  VERBSPP_TRY(waiting, calls.post_call<wait_for>(500));
  return success();
}

result<void> run(std::string_view device_name) {
  VERBSPP_TRY(context, open_device(device_name));
  VERBSPP_TRY(domain, protection_domain::allocate(context));
  VERBSPP_TRY(listener, tcp_listener::open("0"));
  const std::string port = std::to_string(listener.port());
  store values;
  VERBSPP_TRY(
      serving,
      service::create(
          domain, {.clients = 16, .waiting = wait_mode::spin_then_sleep(20us)},
          handles<put>([&](const entry& one) { values.add(one); }),
          handles<get>([&](received_call<get> call) { values.find(std::move(call)); }),
          handles<wait_for>([&](received_call<wait_for> call) { values.wait(std::move(call)); })));
  std::vector<result<void>> outcomes(4, success());
  {
    std::vector<std::jthread> server;
    server.emplace_back([&](const std::stop_token& stop) {
      const auto ended = accept(serving, domain, std::move(listener), stop);
      if (ended.error() != error_kind::cancelled) std::cerr << ended.error() << '\n';
    });
    for (int i = 0; i < 2; ++i)
      server.emplace_back([&](const std::stop_token& stop) {
        if (const auto ended = serving.serve(stop); ended.has_error())
          std::cerr << ended.error() << '\n';
      });
    std::vector<std::jthread> clients;
    clients.emplace_back([&] { outcomes[0] = wait_for_key(domain, port); });
    clients.emplace_back([&] { outcomes[1] = wait_for_key(domain, port); });
    clients.emplace_back([&] { outcomes[2] = leave_early(domain, port); });
    clients.emplace_back([&] { outcomes[3] = fill(domain, port); });
    clients.clear();
  }
  for (const result<void>& each : outcomes) VERBSPP_TRYV(each);
  const service_statistics counted = serving.statistics();
  std::cout << counted.calls << " calls, " << counted.answers << " answers, " << counted.refusals
            << " refusals\n";
  return success();
}

}  // namespace

int main(int argc, char** argv) {
  const auto outcome = run(argc > 1 ? argv[1] : "soft0");
  if (outcome.has_value()) return 0;
  std::cerr << outcome.error() << '\n';
  return 1;
}
