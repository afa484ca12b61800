// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace verbspp {

/// A function that is called after the library has created or destroyed an object of libibverbs or
/// librdmacm. It is called on the thread that creates or destroys the object, and must not throw.
///
/// `call` is the C function, such as "ibv_create_qp" or "ibv_destroy_qp". `object` is the address
/// of the C object, such as an `ibv_qp`; after a destruction, that object no longer exists.
/// `number` is the number of a queue pair, the lkey of a memory region, or the rkey of a memory
/// window; 0 for other objects, and after a destruction.
using object_trace_handler = void (*)(const char* call, const void* object,
                                      std::uint32_t number) noexcept;

/// Replaces the handler and returns the previous one. Null, which is the default, traces nothing.
/// If the library takes an object (`from_native` with `ownership::taken`), only its destruction is
/// traced. If the library borrows an object, nothing is traced. If the program releases an object
/// (`release`), only its creation is traced. A destruction that fails is not traced: the call
/// returns its error, or the handler of `set_destroy_failure_handler` receives it. This function is
/// thread-safe.
object_trace_handler set_object_trace_handler(object_trace_handler handler) noexcept;

namespace detail {
/// Passes a creation or a destruction to the handler.
void trace(const char* call, const void* object, std::uint32_t number = 0) noexcept;
}  // namespace detail

}  // namespace verbspp
