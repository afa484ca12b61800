// SPDX-License-Identifier: Apache-2.0

// Objects that are used after they were moved from, deregistered or revoked.
// Only clang detects this at compile time. With other compilers, clang-tidy's check
// bugprone-use-after-move detects uses after a move.
// expect: while it is in the 'consumed' state
// only: clang
// flags: -Werror=consumed

#include <verbspp/channel.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/memory_window.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/memory/shared_buffer.hpp>
#include <verbspp/qp/builder.hpp>
#include <verbspp/qp/queue_pair.hpp>
#include <verbspp/work/address_handle.hpp>

using namespace verbspp;

// case: use_after_handshake
// expect: post_receive
result<void> connect(prepared_queue_pair<transport::rc> queue_pair, const endpoint& remote) {
#ifndef MUST_FAIL
  VERBSPP_TRYV(queue_pair.post_receive({}));
#endif
  VERBSPP_TRY(connected, std::move(queue_pair).handshake(remote));
#ifdef MUST_FAIL
  VERBSPP_TRYV(queue_pair.post_receive({}));
#endif
  return connected.post_send({});
}

// case: use_after_move
// expect: post_receive
using queue_pair = prepared_queue_pair<transport::rc>;
void keep(queue_pair kept);

auto receive(queue_pair queue_pair) {
#ifdef MUST_FAIL
  keep(std::move(queue_pair));
  return queue_pair.post_receive({});
#else
  auto posted = queue_pair.post_receive({});
  keep(std::move(queue_pair));
  return posted;
#endif
}

// case: use_of_built_one_after_handshake
// expect: number
// VERBSPP_TRY has moved this queue pair out of a result.

using prepared = prepared_queue_pair<transport::rc>;
result<prepared> build();

result<queue_pair_number> connect(const endpoint& remote) {
  VERBSPP_TRY(queue_pair, build());
#ifdef MUST_FAIL
  VERBSPP_TRY(connected, std::move(queue_pair).handshake(remote));
  return queue_pair.number();
#else
  VERBSPP_TRY(connected, std::move(queue_pair).handshake(remote));
  return connected.number();
#endif
}

// case: use_of_deregistered_region
// expect: remote
auto offer(memory_region<access::remote_read> region) {
#ifdef MUST_FAIL
  static_cast<void>(std::move(region).deregister());
  return region.remote();
#else
  auto offered = region.remote();
  static_cast<void>(std::move(region).deregister());
  return offered;
#endif
}

// case: use_of_moved_address_handle
// expect: destination
void keep(address_handle kept);

auto use(address_handle way) {
#ifdef MUST_FAIL
  keep(std::move(way));
  return way.destination(1, queue_key(2)).handle();
#else
  auto* const handle = way.destination(1, queue_key(2)).handle();
  keep(std::move(way));
  return handle;
#endif
}

// case: use_of_moved_buffer
// expect: scatter
void keep(registered_buffer<> kept);

auto use(registered_buffer<> buffer) {
#ifdef MUST_FAIL
  keep(std::move(buffer));
  return buffer.scatter(0, 8);
#else
  auto element = buffer.scatter(0, 8);
  keep(std::move(buffer));
  return element;
#endif
}

// case: use_of_moved_region
// expect: gather
using region = memory_region<access::local_write>;
void keep(region kept);

auto use(region region) {
#ifdef MUST_FAIL
  keep(std::move(region));
  return region.gather(0, 8);
#else
  auto element = region.gather(0, 8);
  keep(std::move(region));
  return element;
#endif
}

// case: use_of_moved_shared_buffer
// expect: scatter
void keep(shared_buffer<> kept);

auto use(shared_buffer<> buffer) {
  keep(BAD(std::move(buffer)) GOOD(buffer));
  return buffer.scatter(0, 8);
}

// case: use_of_moved_window
// expect: rkey
using window = memory_window<memory_window_type::type_2>;
void keep(window kept);

auto use(window window) {
#ifdef MUST_FAIL
  keep(std::move(window));
  return window.rkey();
#else
  auto key = window.rkey();
  keep(std::move(window));
  return key;
#endif
}

// case: use_of_revoked_lease
// expect: remote
auto use(lease<access::remote_write> lease) {
#ifdef MUST_FAIL
  static_cast<void>(lease.revoke());
#endif
  return lease.remote();
}

// case: second_handshake_of_the_same
// expect: handshake
// value() has moved this queue pair out of a result. Assigning another queue pair to the variable
// makes it usable again.

result<void> connect(result<prepared_queue_pair<transport::rc>> built, const endpoint& remote) {
  auto queue_pair = std::move(built).value();
  auto first = std::move(queue_pair).handshake(remote);
#ifdef MUST_FAIL
  auto second = std::move(queue_pair).handshake(remote);
#else
  queue_pair = std::move(built).value();
  auto second = std::move(queue_pair).handshake(remote);
#endif
  VERBSPP_TRYV(first.value().post_send({}));
  return second.value().post_send({});
}
