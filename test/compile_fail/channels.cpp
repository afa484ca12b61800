// SPDX-License-Identifier: Apache-2.0

// Channels.

#include <verbspp/channel.hpp>

#include <string>
#include <utility>

using namespace verbspp;

// case: bind_on_channel
// expect: a channel gives its peer access to memory through leases
// within: 7
auto grant(channel& channel, memory_window<memory_window_type::type_2>& window,
           const window_part<access::remote_write>& part) {
#ifdef MUST_FAIL
  return channel.post_bind(window, part);
#else
  static_cast<void>(window);
  return channel.lease(part);
#endif
}

// case: borrowing_what_is_not_registered
// expect: a blocking call borrows registered memory whose gather() function returns a result
// expect: covering the whole memory
using memory_type = BAD(std::string) GOOD(registered_buffer<>);
void use(channel& channel, memory_type& memory) { static_cast<void>(channel.send(memory)); }

// case: channel_handshake_without_move
// expect: the handshake consumes the prepared channel: write
// expect: std::move(prepared).handshake(remote_endpoint)
// within: 7
auto connect(prepared_channel prepared, const endpoint& remote) {
  return BAD(prepared) GOOD(std::move(prepared)).handshake(remote);
}

// case: channel_of_datagrams
// expect: a channel connects to one peer, over RC or UC
// within: 15
auto start(const protection_domain& domain) {
  return domain.build_channel<BAD(transport::ud) GOOD(transport::uc)>();
}

// case: channel_of_shared_receives
// expect: channels share receives through a hub, which assigns each message to its channel
// within: 15
auto build(const protection_domain& domain, const shared_receive_queue& queue,
           const channel_hub& hub) {
#ifdef MUST_FAIL
  static_cast<void>(hub);
  return domain.build_channel().shared_receive_queue(queue).build();
#else
  static_cast<void>(queue);
  return domain.build_channel().hub(hub).build();
#endif
}

// case: channel_parameter_given_twice
// expect: this parameter was already given
// within: 15
auto start(const protection_domain& domain) {
  const auto builder = domain.build_channel().max_send_work_requests(64);
  return builder BAD(.max_send_work_requests(32)) GOOD(.max_receive_work_requests(32)).build();
}

// case: blocking_fill_of_memory_without_local_write
// expect: only memory that was registered with access::local_write can be filled
constexpr auto rights = BAD(access::local_read) GOOD(access::local_write);
void use(channel& channel, registered_buffer<rights>& memory,
         const remote_memory<access::remote_read>& remote) {
#if !defined(MUST_FAIL) || MUST_FAIL == 1
  static_cast<void>(channel.receive(memory));
#endif
#if !defined(MUST_FAIL) || MUST_FAIL == 2
  static_cast<void>(channel.read(memory, {.remote = remote}));
#endif
}

// case: receive_into_memory_without_local_write
// expect: the device writes to this memory: only memory that was registered with access::local_write can be filled
// within: 20
void post(channel& channel, registered_buffer<access::remote_read>& buffer,
          const remote_memory<access::remote_write>& remote) {
  BAD(static_cast<void>(channel.post_receive(std::move(buffer)));)
  GOOD(static_cast<void>(channel.post_write(std::move(buffer), {.remote = remote}));)
}

// case: coroutine_in_a_scope
// expect: a scope or stream ends when its function returns, but a coroutine or an awaited call may continue after that: pass a function that is not a coroutine
// within: 25
// A minimal coroutine type.
struct task {
  struct promise_type {};
};
void use(channel& channel) {
#if MUST_FAIL == 1
  static_cast<void>(channel.scope([](channel_scope&) -> task { return {}; }));
#elif MUST_FAIL == 2
  static_cast<void>(channel.manual_scope([](channel_scope&) -> task { return {}; }));
#elif MUST_FAIL == 3
  static_cast<void>(channel.stream([](channel_stream&) -> task { return {}; }));
#else
  static_cast<void>(channel.scope([](channel_scope&) {}));
  static_cast<void>(channel.scope([](channel_scope&) { return 1; }));
#endif
}

// case: filling_a_constant_buffer
// expect: the device writes to this memory: a constant buffer cannot be filled
void use(channel& channel, BAD(const) registered_buffer<access::local_write>& buffer,
         remote_memory<access::remote_read> there) {
#if MUST_FAIL == 2
  static_cast<void>(channel.read(buffer, {.remote = there}));
#else
  static_cast<void>(channel.receive(buffer));
#endif
  static_cast<void>(there);
}

// case: filling_a_temporary
// expect: this call fills the memory in place, so data that arrives in a temporary is lost
void use(channel& channel, registered_buffer<access::local_write> buffer,
         remote_memory<access::remote_read> there) {
#if MUST_FAIL == 1
  static_cast<void>(channel.receive(std::move(buffer)));
#elif MUST_FAIL == 2
  static_cast<void>(channel.read(std::move(buffer), {.remote = there}));
#else
  static_cast<void>(channel.receive(buffer));
#endif
  static_cast<void>(there);
}
