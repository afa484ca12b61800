// SPDX-License-Identifier: Apache-2.0

// Checks which types of memory a request can own, keep alive and fill.

#include <verbspp/memory/buffer_part.hpp>
#include <verbspp/memory/detail/memory_keeper.hpp>
#include <verbspp/memory/shared_buffer.hpp>

#include <type_traits>

namespace {

using namespace verbspp;

using buffer = registered_buffer<access::local_write, int>;
using constant_buffer = registered_buffer<access::local_read>;
using part = buffer_part<buffer>;
using shared = shared_buffer<access::local_write, int>;
using constant_shared = shared_buffer<access::local_read>;
using part_of_shared = shared_part<access::local_write, int>;

// Owners must be moved into the request.
static_assert(WorkMemory<buffer> && WorkMemory<buffer&&> && WorkMemory<part>);
static_assert(WorkMemory<constant_buffer>);
static_assert(!WorkMemory<buffer&> && !WorkMemory<const buffer&> && !WorkMemory<const buffer>);
static_assert(!WorkMemory<shared> && !WorkMemory<part_of_shared>);
// A request can own neither a registration of memory that belongs to the caller, nor a type that is
// not memory.
static_assert(!WorkMemory<memory_region<access::local_write>> && !WorkMemory<scatter_element>);
static_assert(!WorkMemory<int>);

// A request can keep a shared handle, whether the handle is moved or copied into it.
static_assert(SharedMemory<shared> && SharedMemory<shared&> && SharedMemory<const shared&>);
static_assert(SharedMemory<part_of_shared> && SharedMemory<constant_shared>);
static_assert(!SharedMemory<buffer> && !SharedMemory<part> && !SharedMemory<gather_element>);

// The device may write to memory whose rights include local write.
static_assert(FillableMemory<buffer> && FillableMemory<part> && FillableMemory<shared>);
static_assert(FillableMemory<part_of_shared>);
static_assert(!FillableMemory<constant_buffer> && !FillableMemory<constant_shared>);
static_assert(!FillableMemory<buffer_part<constant_buffer>>);

static_assert(std::is_nothrow_move_constructible_v<part> &&
              std::is_nothrow_move_assignable_v<part>);
static_assert(!std::is_copy_constructible_v<part> && !std::is_copy_assignable_v<part>);
static_assert(std::is_nothrow_copy_constructible_v<shared> &&
              std::is_nothrow_copy_assignable_v<shared> &&
              std::is_nothrow_copy_constructible_v<part_of_shared>);
static_assert(sizeof(shared) == sizeof(void*));
// These objects are moved into a request that owns its memory, so their sizes matter.
static_assert(sizeof(buffer) == 2 * sizeof(void*));
static_assert(sizeof(part) == 4 * sizeof(void*));
static_assert(sizeof(detail::kept_memory) == sizeof(void*));

}  // namespace
