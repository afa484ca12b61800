// SPDX-License-Identifier: Apache-2.0
/// \file
/// The ways in which a request gets its memory.
///
/// There are three. *Owned* memory (`WorkMemory`) is moved into the request, and returned with the
/// result, even on failure, unless the device may still access it. (A message that is sent or
/// written returns to its pool instead.) *Shared* memory (`SharedMemory`) is passed as a handle, of
/// which the request keeps a copy. *Borrowed* memory is referenced by elements, and the caller must
/// ensure that it outlives the request.
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/memory/registered_buffer.hpp>

#include <type_traits>

namespace verbspp {

/// True for types whose objects keep their bytes and their registration in place for their whole
/// lifetime, even if the objects are moved. Types that guarantee this specialize the variable.
/// Regions do not guarantee it, because they register memory that other code owns.
template <class Memory>
inline constexpr bool enable_work_memory = false;

template <access_flags Rights, class Element>
inline constexpr bool enable_work_memory<registered_buffer<Rights, Element>> = true;

namespace detail {

template <class Memory>
concept HasGather = requires(const Memory& memory) { memory.gather().value().lkey(); };
template <class Memory>
concept HasScatter = requires(Memory& memory) { memory.scatter().value().lkey(); };
template <class Memory>
concept HasKeep = requires(const Memory& memory) { memory.keep().let_go(); };

}  // namespace detail

/// Memory that a request can own: it is moved into the request. Its `gather()`, and its
/// `scatter()` if it has one, return a result with an element that covers the whole memory.
template <class Memory>
concept WorkMemory =
    detail::because(enable_work_memory<std::remove_cvref_t<Memory>>,
                    "a request can own only memory that owns its bytes: a registered_buffer, a "
                    "part of one, or a message of a pool; for other registered memory, pass "
                    "elements (in a coroutine, to an async_scope), and keep the memory alive") &&
    detail::because(
        !std::is_lvalue_reference_v<Memory>,
        "a request takes ownership of its memory: write std::move(buffer); the request's result "
        "returns the buffer, unless it is a message that was sent or written") &&
    detail::because(
        detail::HasGather<std::remove_cvref_t<Memory>>,
        "memory that is moved into a request must have a gather() function that returns a result "
        "with an element covering the whole memory") &&
    detail::because(std::is_nothrow_move_constructible_v<std::remove_cvref_t<Memory>> &&
                        !std::is_copy_constructible_v<std::remove_cvref_t<Memory>> &&
                        !std::is_const_v<std::remove_reference_t<Memory>>,
                    "memory that a request owns has a single owner: it must not be const, and its "
                    "type must be movable without exceptions, and not copyable");

/// Memory of which a request keeps a handle. `keep()` increments the number of the memory's users,
/// which is decremented when the device no longer uses the memory.
template <class Memory>
concept SharedMemory =
    detail::because(detail::HasKeep<std::remove_cvref_t<Memory>>,
                    "a request can keep alive only a shared_buffer or a part of one: to make one "
                    "from a registered_buffer, write std::move(buffer).share().value()") &&
    detail::because(
        detail::HasGather<std::remove_cvref_t<Memory>>,
        "memory that a request keeps alive must have a gather() function that returns a result "
        "with an element covering the whole memory");

/// Memory that the device may write, for data that is received, read, or fetched.
template <class Memory>
concept FillableMemory =
    detail::because(detail::HasScatter<std::remove_cvref_t<Memory>>,
                    "the device writes to this memory: only memory that was registered with "
                    "access::local_write can be filled") &&
    detail::because(!std::is_const_v<std::remove_reference_t<Memory>> ||
                        !enable_work_memory<std::remove_cvref_t<Memory>>,
                    "the device writes to this memory: a constant buffer cannot be filled");

/// Memory that can still be read after the call that filled it has returned.
template <class Memory>
concept OutlivesCall = detail::because(
    std::is_lvalue_reference_v<Memory> || !enable_work_memory<std::remove_cvref_t<Memory>>,
    "this call fills the memory in place, so data that arrives in a temporary is lost: store the "
    "buffer in a variable, and pass it without std::move");

/// Memory that a blocking call can borrow. Its `gather()` returns a result with an element that
/// covers the whole memory.
template <class Memory>
concept BorrowedMemory =
    detail::because(detail::HasGather<std::remove_cvref_t<Memory>>,
                    "a blocking call borrows registered memory whose gather() function returns a "
                    "result with an element covering the whole memory: a buffer, a part of one, a "
                    "region or a message");

}  // namespace verbspp
