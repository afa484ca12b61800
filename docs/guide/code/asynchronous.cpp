// SPDX-License-Identifier: Apache-2.0
/// \file
/// The code of the guide's page on asynchronous work.

#include <verbspp/coroutine.hpp>

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <utility>

namespace guide {

using namespace verbspp;
using namespace std::chrono_literals;

using shared_bytes = shared_buffer<access::local_write>;

/// A coroutine type with the least that is needed.
struct routine {
  struct promise_type {
    routine get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    static std::suspend_never initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    void return_value(const transport_result<void>& returned) { result = returned; }
    [[noreturn]] static void unhandled_exception() { std::terminate(); }
    std::optional<transport_result<void>> result{};
  };
  routine(std::coroutine_handle<promise_type> started) : handle(started) {}
  routine(routine&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  routine& operator=(routine&&) = delete;
  ~routine() {
    if (handle) handle.destroy();
  }
  std::coroutine_handle<promise_type> handle;
};

void use(std::span<const std::byte> /*bytes*/) {}

/// Echoes the messages of one client.
routine echo(channel& link, inbox requests) {
  for (;;) {
    VERBSPP_CO_TRY(request, co_await requests.async_wait(wait_limit::forever()));
    VERBSPP_CO_TRYV(co_await link.async_send(std::move(request)));
  }
}

/// Writes a value, and then a flag that tells the peer that the value is complete.
routine publish(channel& link, const shared_bytes& value,
                const remote_memory<access::remote_write>& to,
                const remote_memory<access::remote_write>& flag) {
  VERBSPP_CO_TRYV(co_await link.async_write({.elements = value, .remote = to}));
  VERBSPP_CO_TRYV(co_await link.async_write({.elements = inline_payload(1U), .remote = flag}, 5s));
  co_return success();
}

/// Reads into a buffer with a single owner.
routine read_into(channel& link, registered_buffer<> buffer,
                  const remote_memory<access::remote_read>& from) {
  auto [read, filled] = co_await link.async_read(std::move(buffer), {.remote = from});
  VERBSPP_CO_TRYV(read);
  use(filled);
  co_return success();
}

/// A request with a function to call when it has finished.
template <class Function>
struct callback : continuation {
  callback(pending<> posted, Function function)
      : continuation(call), work(std::move(posted)), done(std::move(function)) {
    if (!work.then(*this)) call(*this);
  }
  static void call(continuation& self) noexcept {
    auto& mine = static_cast<callback&>(self);
    mine.done(mine.work.wait());
  }
  pending<> work;
  Function done;
};

}  // namespace guide
