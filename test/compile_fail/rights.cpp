// SPDX-License-Identifier: Apache-2.0

// Rights of memory regions, of windows and of remote memory.

#include <verbspp/memory/dmabuf_region.hpp>
#include <verbspp/memory/memory_region.hpp>
#include <verbspp/memory/remote_memory.hpp>
#include <verbspp/memory/remote_word.hpp>
#include <verbspp/memory/shared_buffer.hpp>
#include <verbspp/qp/queue_pair.hpp>

using namespace verbspp;

// case: constant_memory_with_local_write
// expect: constant memory cannot be registered with access::local_write
using object = BAD(const) int;
auto add(const protection_domain& pd, std::span<object> memory) {
  return register_memory<access::local_write>(pd, memory);
}

// case: dmabuf_remote_write_without_local_write
// expect: access::remote_write and access::remote_atomic need access::local_write as well
constexpr auto rights = access::remote_write GOOD(| access::local_write);
auto add(const protection_domain& pd, int fd) {
  return register_dmabuf<rights>(pd, {.file_descriptor = fd, .length = 4096});
}

// case: filling_memory_without_local_write
// expect: only memory that was registered with access::local_write can be filled
template <class Memory>
  requires SharedMemory<Memory> && FillableMemory<Memory>
void fill(const Memory& memory);

constexpr auto rights = BAD(access::local_read) GOOD(access::local_write);
void use(const shared_buffer<rights>& memory) { fill(memory); }

// case: more_remote_rights
// expect: this handle to remote memory lacks some of the required rights, which only the owner of
// expect: the memory can grant
namespace rights = access;

auto widen(const remote_memory<rights::remote_read | rights::remote_write>& memory) {
  return remote_memory<BAD(rights::all_remote) GOOD(rights::remote_read)>(memory);
}

// case: read_without_remote_read
// expect: this handle to remote memory lacks access::remote_read: a read needs a handle with that right
constexpr auto rights = BAD(access::remote_write) GOOD(access::remote_read);
auto read(connected_queue_pair<transport::rc>& queue_pair, const scatter_element& part,
          const remote_memory<rights>& remote) {
  return queue_pair.post_read({.elements = part, .remote = remote});
}

// case: RIGHT_without_local_write
// columns: RIGHT
// row: remote_atomic
// row: remote_write
// expect: access::remote_write and access::remote_atomic need access::local_write as well
constexpr auto rights = access::RIGHT GOOD(| access::local_write);
auto add(const protection_domain& pd, std::span<std::byte> memory) {
  return register_memory<rights>(pd, memory);
}

// case: remote_without_remote_right
// expect: this memory grants no remote rights: register it with access::remote_read,
// expect: remote_write or remote_atomic
constexpr auto rights = access::local_write GOOD(| access::remote_write);
auto offer(const memory_region<rights>& region) { return region.remote(); }

// case: scatter_without_local_write
// expect: this memory lacks access::local_write: the device may not write received, read or fetched
// expect: data into it
constexpr auto rights = access::remote_read GOOD(| access::local_write);
auto whole(const memory_region<rights>& region) { return region.scatter(); }

// case: window_part_without_window_bind
// expect: this memory region lacks access::window_bind: register it with that right, so that memory
// expect: windows can be bound to it
constexpr auto rights = access::remote_read GOOD(| access::window_bind);
auto show(const memory_region<rights>& region) {
  return region.window_part<access::remote_read>(0, 64);
}

// case: window_without_remote_right
// expect: a memory window grants only access::remote_read, remote_write and remote_atomic: name at
// expect: least one of them, and no other right
constexpr access_flags given = BAD(access::local_write) GOOD(access::remote_write);
auto show(const memory_region<access::local_write | access::window_bind>& region) {
  return region.window_part<given>(0, 64);
}

// case: word_without_remote_atomic
// expect: this handle to remote memory lacks access::remote_atomic, which atomic operations need
constexpr access_flags rights = BAD(access::remote_write) GOOD(access::remote_atomic);
auto word(const remote_memory<rights>& memory) { return remote_word::at(memory); }

// case: writable_window_without_local_write
// expect: access::remote_write and access::remote_atomic through a memory window need a region with
// expect: access::local_write
constexpr auto rights = access::window_bind GOOD(| access::local_write);
auto show(const memory_region<rights>& region) {
  return region.window_part<access::remote_write>(0, 64);
}

// case: write_through_readable_window
// expect: this handle to remote memory lacks access::remote_write: a write needs a handle with that right
constexpr access_flags given = BAD(access::remote_read) GOOD(access::remote_write);
// This depends on the rights of the window, not on the rights of the region.
remote_destination far_end(
    const memory_region<access::local_write | access::remote_write | access::window_bind>& region,
    remote_key rkey) {
  return region.window_part<given>(0, 64).value().remote(rkey);
}

// case: write_without_remote_write
// expect: this handle to remote memory lacks access::remote_write: a write needs a handle with that right
constexpr auto rights = BAD(access::remote_read) GOOD(access::remote_write);
auto write(connected_queue_pair<transport::rc>& queue_pair, const gather_element& part,
           const remote_memory<rights>& remote) {
  return queue_pair.post_write({.elements = part, .remote = remote});
}

// case: local_key_for_remote_key
// expect: local_key
auto remote(const memory_region<access::remote_read>& region) {
  const auto key = BAD(region.lkey()) GOOD(region.rkey());
  return remote_memory<access::remote_read>(0, 64, key);
}

// case: local_write_added_without_the_memory
// expect: the memory of a region without access::local_write may be constant: to add that right,
// expect: pass the memory as well
auto add(memory_region<access::local_read> region, std::span<std::byte> memory) {
  (void)memory;
  return std::move(region).change_rights<access::local_write>(GOOD(memory));
}

// case: local_write_added_to_constant_memory
// expect: constant memory cannot be registered with access::local_write
auto add(memory_region<access::local_read> region, std::span<BAD(const) std::byte> memory) {
  return std::move(region).change_rights<access::local_write>(memory);
}
