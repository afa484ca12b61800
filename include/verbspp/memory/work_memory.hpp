// SPDX-License-Identifier: Apache-2.0
/// \file
/// What memory can be given to work that is to keep it until the device has let go.
///
/// There are three strengths. *Owned* memory moves into the work and comes back with the result, on
/// failure too: `WorkMemory`. *Shared* memory is a handle of which the work keeps a copy:
/// `SharedMemory`. *Borrowed* memory is what elements name, and has to outlive the work, which is
/// the caller's duty.
#pragma once

#include <verbspp/base/detail/because.hpp>
#include <verbspp/memory/registered_buffer.hpp>

#include <type_traits>

namespace verbspp {

/// Whether bytes and registration live where they are, unchanged, as long as an object of this type
/// does or was moved to: specialized by the types of which that is true. A region does not: it is
/// the registration of memory that somebody else has.
template <class Memory>
inline constexpr bool enable_work_memory = false;

template <access_flags Rights, class Element>
inline constexpr bool enable_work_memory<registered_buffer<Rights, Element>> = true;

namespace detail {

template <class Memory>
concept HasGather = requires(const Memory& memory) { memory.gather().value().lkey(); };
template <class Memory>
concept HasScatter = requires(const Memory& memory) { memory.scatter().value().lkey(); };
template <class Memory>
concept HasKeep = requires(const Memory& memory) { memory.keep().let_go(); };

}  // namespace detail

/// Memory that work can own: it is moved there, and named by `gather()` and `scatter()`, results of
/// the element of all that it stands for.
template <class Memory>
concept WorkMemory =
    detail::because(!std::is_lvalue_reference_v<Memory>,
                    "work that owns its memory takes it over: write std::move(buffer); it comes "
                    "back with the result") &&
    detail::because(
        enable_work_memory<std::remove_cvref_t<Memory>>,
        "work can own a registered_buffer or a part of one, whose bytes live as long as "
        "it does; of other registered memory give elements, and keep it alive") &&
    detail::because(detail::HasGather<std::remove_cvref_t<Memory>>,
                    "memory of work has a function gather(), which names all of it") &&
    detail::because(std::is_nothrow_move_constructible_v<std::remove_cvref_t<Memory>> &&
                        !std::is_copy_constructible_v<std::remove_cvref_t<Memory>> &&
                        !std::is_const_v<std::remove_reference_t<Memory>>,
                    "memory that work owns has one owner: it can be moved, without exceptions, and "
                    "not be copied");

/// Memory of which work keeps a handle: `keep()` counts it once, until the device has let go.
template <class Memory>
concept SharedMemory =
    detail::because(detail::HasKeep<std::remove_cvref_t<Memory>>,
                    "work can keep a shared_buffer or a part of one: write "
                    "std::move(buffer).share()") &&
    detail::because(detail::HasGather<std::remove_cvref_t<Memory>>,
                    "memory of work has a function gather(), which names all of it");

/// Memory that work can own or keep, and that the device may write: for what is received, read, or
/// fetched.
template <class Memory>
concept FillableMemory =
    detail::because(detail::HasScatter<std::remove_cvref_t<Memory>>,
                    "the device writes there: only memory that was registered with "
                    "access::local_write can be filled") &&
    detail::because(!std::is_const_v<std::remove_reference_t<Memory>> ||
                        !enable_work_memory<std::remove_cvref_t<Memory>>,
                    "the device writes there: a constant buffer can't be filled");

/// Memory that is still there to be read when a call that has filled it returns.
template <class Memory>
concept OutlivesCall = detail::because(
    std::is_lvalue_reference_v<Memory> || !enable_work_memory<std::remove_cvref_t<Memory>>,
    "this call fills the memory and leaves it where it is, so what arrives in a "
    "temporary is lost: give it a buffer that has a name");

/// Memory that a call can borrow while it waits, which names all of itself by `gather()`.
template <class Memory>
concept BorrowedMemory =
    detail::because(detail::HasGather<std::remove_cvref_t<Memory>>,
                    "a call that waits borrows registered memory that names all of itself: a "
                    "buffer, a part of one, a region, a message");

}  // namespace verbspp
