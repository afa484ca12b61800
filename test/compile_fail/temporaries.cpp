// SPDX-License-Identifier: Apache-2.0

// Temporaries in place of objects that must live longer than the expression.

#include <verbspp/base/result.hpp>
#include <verbspp/channel.hpp>
#include <verbspp/coroutine.hpp>
#include <verbspp/device/context.hpp>
#include <verbspp/exchange.hpp>
#include <verbspp/memory/buffer_part.hpp>
#include <verbspp/memory/registered_buffer.hpp>
#include <verbspp/memory/shared_buffer.hpp>
#include <verbspp/work/address_handle.hpp>

using namespace verbspp;

// case: destination_of_temporary
// expect: use a named address handle
// expect-gcc: use of deleted function
// expect-clang: deleted
address_handle resolved();

auto destination() {
#ifdef MUST_FAIL
  return resolved().destination(1, queue_key(2));
#else
  const auto way = resolved();
  return way.destination(1, queue_key(2)).number();
#endif
}

// case: entries_of_temporary_gid_table
// expect: a temporary frees its entries: store the table in a variable
// expect-gcc: use of deleted function
// expect-clang: deleted
gid_table queried();

auto first() {
#ifdef MUST_FAIL
  return queried().begin()->index;
#else
  const auto table = queried();
  return table.begin()->index;
#endif
}

// case: immovable_value_of_temporary
// expect: the value cannot be moved out of this result, because its type cannot be moved or the
// expect: result is const: keep the result in a variable
struct pinned {
  pinned() = default;
  pinned(const pinned&) = delete;
  pinned& operator=(const pinned&) = delete;
  int number = 0;
};

result<pinned> make() { return result<pinned>(std::in_place); }

int use() {
#ifdef MUST_FAIL
  return make().value().number;
#else
  const auto made = make();
  return made.value().number;
#endif
}

// case: memory_of_temporary_buffer
// expect: a temporary frees its memory: store the buffer in a variable
// expect-gcc: use of deleted function
// expect-clang: deleted
registered_buffer<> allocated();

bool is_there() {
#ifdef MUST_FAIL
  return allocated().data() != nullptr;
#else
  const auto buffer = allocated();
  return buffer.data() != nullptr;
#endif
}

// case: memory_of_temporary_handle
// expect: a temporary
// expect-gcc: use of deleted function
// expect-clang: deleted
shared_buffer<> shared();
buffer_part<registered_buffer<>> owned_part();

bool is_there() {
#if !defined(MUST_FAIL)
  const auto handle = shared();
  const auto part = handle.part(0, 1).value();
  const auto owner = owned_part();
  return handle.data() != nullptr && part.data() != nullptr && owner.data() != nullptr;
#elif MUST_FAIL == 1
  return shared().data() != nullptr;
#elif MUST_FAIL == 2
  return shared().part(0, 1).value().data() != nullptr;
#elif MUST_FAIL == 3
  return owned_part().data() != nullptr;
#endif
}

// case: lease_of_temporary_region
// expect: a lease refers to its region, which must outlive it: store the region in
// expect: a variable, and pass it without std::move
using leased_region = memory_region<access::local_write | access::window_bind>;

BAD(leased_region) GOOD(const leased_region&) memory();
void grant(channel& to) { static_cast<void>(to.lease<access::remote_write>(memory(), 0, 64)); }

// case: awaited_lease_of_temporary_region
// expect: a lease refers to its region, which must outlive it: store the region in
// expect: a variable, and pass it without std::move
using leased_region = memory_region<access::local_write | access::window_bind>;

BAD(leased_region) GOOD(const leased_region&) memory();
void grant(channel& to) {
  static_cast<void>(to.async_lease<access::remote_write>(memory(), 0, 64));
}

// case: meeting_at_a_temporary_listener
// expect: a meeting uses its listener until the meeting is done: store the listener in a variable
auto start([[maybe_unused]] const tcp_listener& listener, prepared_channel prepared) {
  return meeting_session<int, prepared_channel>::start(
      BAD(tcp_listener::open("0").value()) GOOD(listener), "host", "4711", std::move(prepared), 1,
      std::chrono::seconds(1));
}
