// SPDX-License-Identifier: Apache-2.0
/// \file
/// The code of the guide's page on asynchronous work.

#include "routine.hpp"
#include <verbspp/coroutine.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/sender.hpp>

#include <chrono>
#include <cstddef>
#include <span>
#include <stop_token>
#include <utility>

namespace guide {

using namespace verbspp;
using namespace std::chrono_literals;

using shared_bytes = shared_buffer<access::local_write>;
using their_memory = remote_memory<access::remote_write>;

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

/// Writes a buffer in two halves. The buffer stays with the caller.
routine publish_halves(channel& link, const registered_buffer<>& from,
                       const remote_memory<access::remote_write>& to) {
  async_scope scope(link);
  const std::size_t half = from.size() / 2;
  VERBSPP_CO_TRY(first, from.gather(0, half));
  VERBSPP_CO_TRY(second, from.gather(half, half));
  VERBSPP_CO_TRY(behind, to.slice(half, half));
  VERBSPP_CO_TRYV(scope.post_write({.elements = first, .remote = to}));  // does not wait
  VERBSPP_CO_TRYV(co_await scope.async_write({.elements = second, .remote = behind}));
  VERBSPP_CO_TRYV(co_await scope.async_finish());
  co_return success();
}

/// Writes a buffer in pieces. If the send queue has at least 32 places, one out of sixteen requests
/// is signaled, otherwise more of them.
routine publish_pieces(channel& link, const registered_buffer<>& from,
                       const remote_memory<access::remote_write>& to, std::size_t piece) {
  async_stream stream(link);
  for (std::size_t at = 0; at + piece <= from.size(); at += piece) {
    VERBSPP_CO_TRY(memory, from.gather(at, piece));
    VERBSPP_CO_TRY(remote, to.slice(at, piece));
    VERBSPP_CO_TRYV(co_await stream.async_room());
    VERBSPP_CO_TRYV(stream.post_write({.elements = memory, .remote = remote}));
  }
  VERBSPP_CO_TRYV(co_await stream.async_finish());
  co_return success();
}

/// Serves the channels of a hub.
routine poll_hub(event_loop& loop, channel_hub& hub) {
  for (;;) {
    VERBSPP_CO_TRYV(co_await loop.async_ready(hub));
    VERBSPP_CO_TRYV(hub.poll());  // resumes the coroutines that await a channel of the hub
  }
}

/// Connects, and writes a value.
routine connect_and_publish(event_loop& loop,
                            exchange_session<their_memory, prepared_channel> session,
                            const shared_bytes& value) {
  VERBSPP_CO_TRY(met, co_await loop.async_run(std::move(session)));
  VERBSPP_CO_TRYV(co_await met.channel.async_write({.elements = value, .remote = met.theirs}));
  co_return success();
}

void tell(const transport_result<completed_work>& /*written*/) {}

/// Writes a value, and calls a function when the peer has it.
result<void> write_and_tell(channel& link, const shared_bytes& value,
                            const remote_memory<access::remote_write>& to) {
  return then(link.post_write(value, {.remote = to}),
              [](const transport_result<completed_work>& written) { tell(written); });
}

/// As above, with a callback object that the program owns.
result<void> write_and_wait(channel& link, const shared_bytes& value,
                            const remote_memory<access::remote_write>& to) {
  VERBSPP_TRY(work, link.post_write(value, {.remote = to}));
  const callback next(std::move(work), [](const auto& written) { tell(written); });
  while (next.is_waiting()) link.poll();
  return success();
}

/// Returns a sender that writes a value.
auto writing(channel& link, const shared_bytes& value,
             const remote_memory<access::remote_write>& to) {
  return as_sender(
      [&link, value, to] { return link.async_write({.elements = value, .remote = to}); });
}

/// A receiver with a stop token.
struct receiver {
  void set_value(const completed_work& written) && noexcept { tell(written); }
  void set_error(const transport_error& failed) && noexcept { tell(failed); }
  void set_stopped() && noexcept {}

  struct environment {
    std::stop_token stop;
    std::stop_token query(execution::get_stop_token_t /*query*/) const noexcept { return stop; }
  };
  environment get_env() const noexcept { return {stop}; }
  std::stop_token stop;
};

}  // namespace guide
