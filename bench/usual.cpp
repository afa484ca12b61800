// SPDX-License-Identifier: Apache-2.0
// Written like a program that uses the library: the library's functions check offsets and lengths,
// errors are passed to the caller, and the compiler gets no hints, except that `put` must not be
// inlined.
#include "usual.hpp"

#include <chrono>
#include <cstring>
#include <utility>

namespace usual {

using namespace verbspp;
using namespace std::chrono_literals;

result<void> write(channel& link, const registered_buffer<>& from, const remote& to,
                   const piece& part) {
  VERBSPP_TRY(source, from.gather(part.offset, part.length));
  VERBSPP_TRY(target, to.slice(part.remote_offset, part.length));
  VERBSPP_TRYV(link.write({.elements = source, .remote = target}));
  return success();
}

result<void> write_within(channel& link, const registered_buffer<>& from, const remote& to,
                          const piece& part) {
  VERBSPP_TRY(source, from.gather(part.offset, part.length));
  VERBSPP_TRY(target, to.slice(part.remote_offset, part.length));
  VERBSPP_TRYV(link.write({.elements = source, .remote = target}, 5s));
  return success();
}

result<void> post_and_wait(channel& link, const registered_buffer<>& from, const remote& to,
                           const piece& part) {
  VERBSPP_TRY(source, from.gather(part.offset, part.length));
  VERBSPP_TRY(target, to.slice(part.remote_offset, part.length));
  VERBSPP_TRY(work, link.post_write({.elements = source, .remote = target}));
  VERBSPP_TRYV(work.wait());
  return success();
}

result<void> write_all(channel& link, const registered_buffer<>& from, const remote& to,
                       std::span<const piece> parts, std::vector<pending<>>& requests) {
  requests.clear();
  for (const piece& part : parts) {
    VERBSPP_TRY(source, from.gather(part.offset, part.length));
    VERBSPP_TRY(target, to.slice(part.remote_offset, part.length));
    VERBSPP_TRY(work, link.post_write({.elements = source, .remote = target}));
    requests.push_back(std::move(work));
  }
  for (pending<>& work : requests) VERBSPP_TRYV(work.wait());
  return success();
}

result<void> write_list(channel& link, const registered_buffer<>& from, const remote& to,
                        std::span<const piece> parts) {
  VERBSPP_TRYV(link.scope([&](channel_scope& scope) -> result<void> {
    for (const piece& part : parts) {
      VERBSPP_TRY(source, from.gather(part.offset, part.length));
      VERBSPP_TRY(target, to.slice(part.remote_offset, part.length));
      VERBSPP_TRYV(scope.post_write({.elements = source, .remote = target}));
    }
    return success();
  }));
  return success();
}

result<void> write_stream(channel& link, const registered_buffer<>& from, const remote& to,
                          std::span<const piece> parts, std::size_t rounds) {
  VERBSPP_TRYV(link.stream(
      [&](channel_stream& stream) -> result<void> {
        for (std::size_t round = 0; round < rounds; ++round)
          for (const piece& part : parts) {
            VERBSPP_TRY(source, from.gather(part.offset, part.length));
            VERBSPP_TRY(target, to.slice(part.remote_offset, part.length));
            VERBSPP_TRYV(stream.post_write({.elements = source, .remote = target}));
          }
        return success();
      },
      {.signal_every = signal_every}));
  return success();
}

result<void> write_owned(channel& link, registered_buffer<>& from, const remote& to,
                         std::size_t remote_offset) {
  VERBSPP_TRY(target, to.slice(remote_offset, from.size()));
  VERBSPP_TRY(work, link.post_write(std::move(from), {.remote = target}));
  auto done = work.wait();
  from = std::move(done.memory);
  VERBSPP_TRYV(done.result);
  return success();
}

result<void> write_shared(channel& link, const shared_buffer<>& from, const remote& to,
                          const piece& part) {
  VERBSPP_TRY(source, from.part(part.offset, part.length));
  VERBSPP_TRY(target, to.slice(part.remote_offset, part.length));
  VERBSPP_TRY(work, link.post_write(std::move(source), {.remote = target}));
  VERBSPP_TRYV(work.wait());
  return success();
}

writer write_awaited(channel& link, const shared_buffer<>& from, const remote& to,
                     std::span<const piece> parts, std::uint64_t& written) {
  for (;;)
    for (const piece& part : parts) {
      VERBSPP_CO_TRY(target, to.slice(part.remote_offset, from.size()));
      VERBSPP_CO_TRYV(co_await link.async_write({.elements = from, .remote = target}));
      ++written;
    }
}

result<void> send_message(channel& link, const message_pool& pool,
                          std::span<const std::byte> bytes) {
  VERBSPP_TRY(letter, pool.take());
  VERBSPP_TRYV(letter.assign(bytes));
  VERBSPP_TRY(work, link.post_send(std::move(letter)));
  VERBSPP_TRYV(work.wait());
  return success();
}

namespace {

[[gnu::noinline]] result<void> put(channel& link, const registered_buffer<>& from, const remote& to,
                                   std::size_t offset, std::size_t length,
                                   std::size_t remote_offset) {
  VERBSPP_TRY(source, from.gather(offset, length));
  VERBSPP_TRY(target, to.slice(remote_offset, length));
  VERBSPP_TRYV(link.write({.elements = source, .remote = target}));
  return success();
}

}  // namespace

result<void> put_record(channel& link, const registered_buffer<>& from, const remote& to,
                        const piece& part) {
  VERBSPP_TRYV(put(link, from, to, part.offset, part.length, part.remote_offset));
  return success();
}

result<std::uint64_t> receive(inbox& from) {
  VERBSPP_TRY(letter, from.wait());
  std::uint64_t value;
  if (letter.size() < sizeof value)
    return error(error_kind::mismatch, "receive", "the message has no value");
  std::memcpy(&value, letter.bytes().data(), sizeof value);
  return value;
}

result<std::size_t> serve(const channel_hub& hub, std::vector<client>& clients,
                          std::span<arrival> slots) {
  VERBSPP_TRY(arrived, hub.wait(slots, 100ms));
  for (arrival& each : arrived) {
    client& from = clients[each.source.index];
    if (from.link.id() != each.source) continue;
    const message letter = std::move(each.message);
    ++from.messages;
    from.bytes += letter.size();
  }
  return arrived.size();
}

result<void> post_calls(caller& calls, const echo::request& asked, std::size_t count,
                        std::vector<pending_call<echo>>& requests) {
  for (; count > 0; --count) {
    VERBSPP_TRY(posted, calls.post_call<echo>(asked));
    requests.push_back(std::move(posted));
  }
  return success();
}

result<std::uint64_t> take_answers(std::vector<pending_call<echo>>& requests) {
  std::uint64_t sum = 0;
  for (pending_call<echo>& each : requests) {
    VERBSPP_TRY(answer, each.wait());
    sum += static_cast<std::uint64_t>(answer[0]);
  }
  requests.clear();
  return sum;
}

result<void> serve_calls(service& serving) {
  VERBSPP_TRYV(serving.poll());
  return success();
}

}  // namespace usual
