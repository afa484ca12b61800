// SPDX-License-Identifier: Apache-2.0

// Groups and worlds.
// within: 25

#include <verbspp/group.hpp>
#include <verbspp/ranks.hpp>

#include <functional>
#include <span>
#include <string>
#include <string_view>

using namespace verbspp;

// case: bootstrap_without_fence
// expect: a bootstrap must be movable, and must have rank(), size(), put(key, bytes)
struct launcher {
  std::uint32_t rank();
  std::uint32_t size();
  result<void> put(std::string_view key, std::span<const std::byte> value);
#ifndef MUST_FAIL
  group_result<void> fence(const wait_limit& limit);
#endif
  result<std::size_t> get(std::uint32_t rank, std::string_view key, std::span<std::byte> into,
                          const wait_limit& limit);
};

group_result<world> join(launcher from, const protection_domain& domain) {
  return world::join(from, domain.build_channel(), std::chrono::seconds(1));
}

// case: collective_value_with_pointers
// expect: collective steps of a world are for trivially copyable, default constructible values
// expect: of at most 256 bytes
void gather(world& all, const std::string& words) {
  static_cast<void>(all.all_gather(words GOOD(.size()), std::chrono::seconds(1)));
}

// case: collective_NAME
// expect: and those of a pointer, a view or an optional may mean nothing to another rank
// columns: NAME | BEYOND
// row: span | numbers
// row: pointer | numbers.data()
// row: text | std::string_view("words")
// row: reference | std::ref(numbers[0])
void give(world& all, std::span<int> numbers) {
  GOOD(static_cast<void>(all.all_gather(numbers[0], std::chrono::seconds(1)));)
  BAD(static_cast<void>(all.all_gather(BEYOND, std::chrono::seconds(1)));)
}

// case: collective_result
// expect: this is a result or an optional, which may hold no value: get the value with .value() or, from a result, with VERBSPP_TRY
void give(world& all, const result<int>& number) {
  static_cast<void>(all.all_gather(number GOOD(.assume_value()), std::chrono::seconds(1)));
}

// case: group_gather_of_sends
// expect: gather receives or reads a part from each peer
void post(group_scope& peers) {
#ifdef MUST_FAIL
  static_cast<void>(peers.post_gather({0, 1}, [](std::uint32_t) { return send_operation(); }));
#else
  static_cast<void>(peers.post_gather({0, 1}, [](std::uint32_t) { return receive_operation(); }));
#endif
}

// case: group_handshake_without_move
// expect: the handshake consumes the prepared group: write
group_result<group> connect(prepared_group& prepared, std::span<const endpoint> remotes) {
  return BAD(prepared) GOOD(std::move(prepared)).handshake(remotes);
}

// case: group_manual_scope_without_results
// expect: in a manual scope, every result has to be taken, but this function returns no handles
void post(group& peers) {
#ifdef MUST_FAIL
  static_cast<void>(peers.manual_scope([](manual_group_scope& scope) {
    static_cast<void>(scope.post_multicast({0, 1}, send_operation()));
  }));
#else
  static_cast<void>(peers.manual_scope(
      [](manual_group_scope& scope) { static_cast<void>(scope[0].post_send(send_operation())); }));
#endif
}

// case: group_multicast_to_readable_memory
// expect: returns remote memory of that peer with access::remote_write
void post(group& peers, const gather_element& news,
          const remote_memory<access::remote_read>& readable,
          const remote_memory<access::remote_write>& writable) {
#ifdef MUST_FAIL
  static_cast<void>(peers.multicast({0, 1}, news, [&](std::uint32_t) { return readable; }));
  static_cast<void>(writable);
#else
  static_cast<void>(peers.multicast({0, 1}, news, [&](std::uint32_t) { return writable; }));
  static_cast<void>(readable);
#endif
}

// case: group_scatter_of_receives
// expect: scatter sends or writes a part to each peer
void post(group& peers) {
#ifdef MUST_FAIL
  static_cast<void>(peers.scatter({0, 1}, [](std::uint32_t) { return receive_operation(); }));
#else
  static_cast<void>(peers.scatter({0, 1}, [](std::uint32_t) { return send_operation(); }));
#endif
}

// case: coroutine_in_a_scope_of_a_group
// expect: a scope ends when its function returns, but a coroutine or an awaited call may continue after that
// A minimal coroutine type.
struct task {
  struct promise_type {};
};
void use(group& peers) {
#ifdef MUST_FAIL
  static_cast<void>(peers.scope([](group_scope&) -> task { return {}; }));
#else
  static_cast<void>(peers.scope([](group_scope&) {}));
#endif
}
