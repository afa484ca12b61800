// SPDX-License-Identifier: Apache-2.0

// Requests and sessions that a coroutine awaits, and senders of requests. The memory of a request
// must be able to outlive the coroutine, which may be destroyed while the request is in flight.

#include <verbspp/coroutine.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/sender.hpp>

#include <cstdint>
#include <utility>

using namespace verbspp;

// case: await_borrowed_elements
// expect: so the request has to keep the memory alive: pass a shared_buffer or a part of one
// expect: except for an atomic operation, move the buffer, as in async_write(std::move(buffer),
// within: 8
auto write(channel& link, const BAD(registered_buffer<>) GOOD(shared_buffer<>) & buffer,
           const remote_memory<access::remote_write>& to) {
  return link.async_write({.elements = buffer BAD(.gather().value()) GOOD(), .remote = to});
}

// case: await_borrowed_region
// expect: so the request has to keep the memory alive: pass a shared_buffer or a part of one
// within: 8
using memory_type = BAD(memory_region<access::local_write>)
    GOOD(shared_buffer<access::local_write>);
auto receive(channel& link, const memory_type& memory) {
  return link.async_receive({.elements = memory});
}

// case: await_CALL_of_an_operation_object
// columns: CALL
// row: send
// row: receive
// row: write
// row: read
// row: compare_and_swap
// row: fetch_and_add
// expect: the elements of this operation are borrowed
// expect: write the operation in the call, with a shared_buffer or a part of one as its memory
// within: 8
auto post(channel& link, const BAD(CALL_operation) GOOD(async_CALL_operation) & operation) {
  return link.async_CALL(operation);
}

// case: await_CALL_with_a_buffer_that_is_not_moved
// columns: CALL | REST | RIGHTS
// row: send | {} | access::remote_write
// row: receive | wait_limit::forever() | access::remote_read
// row: write | {.remote = peer} | access::remote_write
// row: read | {.remote = peer} | access::remote_read
// expect: a request takes ownership of its memory: write std::move(buffer)
// expect: or borrow elements of it in an async_scope
// within: 8
auto post(channel& link, registered_buffer<>& buffer,
          [[maybe_unused]] const remote_memory<RIGHTS>& peer) {
  return link.async_CALL(BAD(buffer) GOOD(std::move(buffer)), REST);
}

// case: await_CALL_of_a_scope_with_a_buffer
// columns: CALL | REST | ELEMENTS | RIGHTS
// row: send | {} | gather().value() | access::remote_write
// row: receive | wait_limit::forever() | scatter().value() | access::remote_read
// row: write | {.remote = peer} | gather().value(), .remote = peer | access::remote_write
// row: read | {.remote = peer} | scatter().value(), .remote = peer | access::remote_read
// expect: an awaited request of a scope borrows its memory: pass elements
// expect: await the call of the channel, such as link.async_write(std::move(buffer), {.remote =
// within: 8
auto post(async_scope& scope, registered_buffer<>& buffer,
          [[maybe_unused]] const remote_memory<RIGHTS>& peer) {
  return scope.async_CALL(BAD(std::move(buffer), REST) GOOD({.elements = buffer.ELEMENTS}));
}

// case: await_read_into_memory_that_is_only_read
// expect: the device writes to this memory: only memory that was registered with access::local_write
// expect: can be filled
// within: 8
auto read(channel& link, const shared_buffer<BAD(access::local_read) GOOD(access::local_write)>& to,
          const remote_memory<access::remote_read>& from) {
  return link.async_read({.elements = to, .remote = from});
}

// case: await_posted_request_that_borrows_its_memory
// expect: a coroutine cannot await this handle, because its memory is borrowed
// expect: use an async_scope, or post with shared or owned memory
// within: 14
auto result_of(BAD(pending<>) GOOD(kept_pending) & work) { return work.async_wait(); }

// case: await_session_that_is_not_moved
// expect: the session is moved into the awaitable: write loop.async_run(std::move(session))
// within: 8
using session_type = exchange_session<std::uint32_t, prepared_channel>;
auto met(event_loop& loop, session_type& session) {
  return loop.async_run(BAD(session) GOOD(std::move(session)));
}

// case: sender_of_a_blocking_call
// expect: a sender needs a function that returns an awaited call, as in
// expect: as_sender([&] { return link.async_write({.elements = shared, .remote = theirs}); })
// within: 15
auto send(channel& link) {
  return as_sender([&] { return link.BAD(send) GOOD(async_send)({}); });
}

// case: sender_of_a_call_without_a_function
// expect: a sender needs a function that returns an awaited call
// within: 15
auto send_now(channel& link) {
  return as_sender(BAD(link.async_send({})) GOOD([&] { return link.async_send({}); }));
}
