// SPDX-License-Identifier: Apache-2.0
// The verbspp versions of functions of usual.h. Also an awaited write, and calls, neither of which
// usual.h has.
#pragma once

#include "usual.h"
#include <verbspp/calls.hpp>
#include <verbspp/coroutine.hpp>

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

namespace usual {

using remote = verbspp::remote_memory<verbspp::access::remote_write>;

/// A client of a server. The server finds a client by the index of the client's channel.
struct client {
  verbspp::channel link;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

/// A coroutine that writes one part after the other. It starts each write when the previous one has
/// finished.
struct writer {
  struct promise_type {
    writer get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    static std::suspend_never initial_suspend() noexcept { return {}; }
    static std::suspend_always final_suspend() noexcept { return {}; }
    static void return_value(const verbspp::transport_result<void>&) noexcept {}
    [[noreturn]] static void unhandled_exception() noexcept { std::terminate(); }
  };
  writer(std::coroutine_handle<promise_type> started) : handle(started) {}
  // Needed to store the coroutine in a `std::optional`.
  writer(writer&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
  writer& operator=(writer&&) = delete;
  ~writer() {
    if (handle) handle.destroy();
  }

  std::coroutine_handle<promise_type> handle;
};
/// A method of a service. Its answer is a copy of the request.
struct echo {
  static constexpr std::uint16_t number = 1;
  static constexpr const char* name = "echo";
  using request = std::array<std::byte, 32>;
  using answer = request;
};

writer write_awaited(verbspp::channel& link, const verbspp::shared_buffer<>& from, const remote& to,
                     std::span<const piece> parts, std::uint64_t& written);

verbspp::result<void> write(verbspp::channel& link, const verbspp::registered_buffer<>& from,
                            const remote& to, const piece& part);
verbspp::result<void> write_within(verbspp::channel& link, const verbspp::registered_buffer<>& from,
                                   const remote& to, const piece& part);
verbspp::result<void> post_and_wait(verbspp::channel& link,
                                    const verbspp::registered_buffer<>& from, const remote& to,
                                    const piece& part);
verbspp::result<void> write_all(verbspp::channel& link, const verbspp::registered_buffer<>& from,
                                const remote& to, std::span<const piece> parts,
                                std::vector<verbspp::pending<>>& requests);
verbspp::result<void> write_list(verbspp::channel& link, const verbspp::registered_buffer<>& from,
                                 const remote& to, std::span<const piece> parts);
verbspp::result<void> write_stream(verbspp::channel& link, const verbspp::registered_buffer<>& from,
                                   const remote& to, std::span<const piece> parts,
                                   std::size_t rounds);
verbspp::result<void> write_owned(verbspp::channel& link, verbspp::registered_buffer<>& from,
                                  const remote& to, std::size_t remote_offset);
verbspp::result<void> write_shared(verbspp::channel& link, const verbspp::shared_buffer<>& from,
                                   const remote& to, const piece& part);
verbspp::result<void> send_message(verbspp::channel& link, const verbspp::message_pool& pool,
                                   std::span<const std::byte> bytes);
verbspp::result<void> put_record(verbspp::channel& link, const verbspp::registered_buffer<>& from,
                                 const remote& to, const piece& part);
verbspp::result<std::uint64_t> receive(verbspp::inbox& from);
verbspp::result<std::size_t> serve(const verbspp::channel_hub& hub, std::vector<client>& clients,
                                   std::span<verbspp::arrival> slots);
verbspp::result<void> post_calls(verbspp::caller& calls, const echo::request& asked,
                                 std::size_t count,
                                 std::vector<verbspp::pending_call<echo>>& requests);
verbspp::result<std::uint64_t> take_answers(std::vector<verbspp::pending_call<echo>>& requests);
verbspp::result<void> serve_calls(verbspp::service& serving);

}  // namespace usual
