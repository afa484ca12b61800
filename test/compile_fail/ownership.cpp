// SPDX-License-Identifier: Apache-2.0

// Owners that are copied, owned memory that is not moved, and borrowed memory in place of owned
// memory.

#include <verbspp/channel.hpp>
#include <verbspp/memory/buffer_part.hpp>
#include <verbspp/memory/shared_buffer.hpp>
#include <verbspp/memory/work_memory.hpp>
#include <verbspp/qp/queue_pair.hpp>

#include <utility>

using namespace verbspp;

// case: buffer_of_part_without_move
// expect: the buffer is moved out of the part: std::move(part).buffer()
// expect-gcc: use of deleted function
// expect-clang: deleted
auto whole(buffer_part<registered_buffer<>> part) {
  return BAD(part) GOOD(std::move(part)).buffer();
}

// case: copy_queue_pair
// expect-gcc: /use of deleted function .*queue_pair\(const .*queue_pair/
// expect-clang: /call to deleted constructor of .*queue_pair/
using queue_pair = prepared_queue_pair<transport::rc>;

queue_pair take(queue_pair& from) { return BAD(from) GOOD(std::move(from)); }

// case: channel_copied
// expect-gcc: /use of deleted function .*channel\(const .*channel/
// expect-clang: /call to deleted constructor of .*channel/
channel take(channel& from) {
#ifdef MUST_FAIL
  auto copy = from;
  return copy;
#else
  return std::move(from);
#endif
}

// case: pending_copied
// expect-gcc: /use of deleted function .*pending/
// expect-clang: /call to deleted constructor of .*pending/
void wait(pending<>& work) {
  pending<> mine = BAD(work) GOOD(std::move(work));
  static_cast<void>(mine.wait());
}

// case: detach_of_borrowed_memory_or_without_move
// expect-gcc: /use of deleted function .*detach/
// expect-clang: /deleted (member )?function/
void leave(pending<>& borrowing, pending<registered_buffer<>>& owning) {
  (void)borrowing, (void)owning;
#if MUST_FAIL == 1
  static_cast<void>(std::move(borrowing).detach());
#elif MUST_FAIL == 2
  static_cast<void>(owning.detach());
#else
  static_cast<void>(borrowing.wait());
  static_cast<void>(std::move(owning).detach());
#endif
}

// case: lease_of_buffer_without_move
// expect: a lease takes ownership of its memory: write std::move(buffer)
using leased_buffer = registered_buffer<access::local_write | access::window_bind>;

auto grant(channel& to, leased_buffer buffer) {
  return to.lease<access::remote_write>(BAD(buffer) GOOD(std::move(buffer)));
}

// case: owned_memory_without_move
// expect: a request takes ownership of its memory: write std::move(buffer)
// within: 20
void post(channel& channel, registered_buffer<>& buffer,
          const remote_memory<access::remote_write>& remote) {
#if MUST_FAIL == 1
  static_cast<void>(channel.post_send(buffer));
#elif MUST_FAIL == 2
  static_cast<void>(channel.post_receive(buffer));
#elif MUST_FAIL == 3
  static_cast<void>(channel.post_write(buffer, {.remote = remote}));
#else
  static_cast<void>(channel.post_write(std::move(buffer), {.remote = remote}));
#endif
}

// case: part_without_move
// expect: the part owns it: std::move(buffer).part
// expect-gcc: use of deleted function
// expect-clang: deleted
auto half(registered_buffer<> buffer) {
#ifdef MUST_FAIL
  return buffer.part(0, buffer.size() / 2);
#else
  const std::size_t size = buffer.size();
  return std::move(buffer).part(0, size / 2);
#endif
}

// case: revoke_of_owned_without_move
// expect: revoke
// expect: std::move(lease).revoke()
using leased_buffer = registered_buffer<access::local_write | access::window_bind>;

auto end(lease<access::remote_write, leased_buffer> lease) {
  return BAD(lease) GOOD(std::move(lease)).revoke();
}

// case: share_without_move
// expect: the handles own the buffer: std::move(buffer).share()
// expect-gcc: use of deleted function
// expect-clang: deleted
auto shared(registered_buffer<> buffer) { return BAD(buffer) GOOD(std::move(buffer)).share(); }

// case: work_memory_of_a_region
// expect: a request can own only memory that owns its bytes: a registered_buffer, a part of one
template <class Memory>
  requires WorkMemory<Memory>
void give(Memory&& memory);

void use(BAD(memory_region<>) GOOD(registered_buffer<>) memory) { give(std::move(memory)); }

// case: work_memory_without_move
// expect: a request takes ownership of its memory: write std::move(buffer)
template <class Memory>
  requires WorkMemory<Memory>
void give(Memory&& memory);

void use(registered_buffer<> buffer) { give(BAD(buffer) GOOD(std::move(buffer))); }
