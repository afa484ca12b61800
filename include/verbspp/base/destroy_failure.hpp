// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

namespace verbspp {

/// A function that receives errors that no call can return, mostly because they occur in
/// destructors: failures to release a resource, such as a verbs object or registered memory.
///
/// It is called on the thread on which the failure occurs, and must not throw.
using destroy_failure_handler = void (*)(const error& failure) noexcept;

/// Replaces the handler and returns the previous one. Passing null restores the default handler,
/// which writes one line to stderr. This function is thread-safe.
destroy_failure_handler set_destroy_failure_handler(destroy_failure_handler handler) noexcept;

namespace detail {
/// Reports to the handler that a resource could not be released. Does nothing if `errnum` is 0.
void report_release(int errnum, const char* operation, const char* hint = nullptr) noexcept;
/// Reports the failure to destroy an object, or traces its destruction if `errnum` is 0.
void report_destroy(const void* object, int errnum, const char* operation,
                    const char* hint = nullptr) noexcept;
}  // namespace detail

}  // namespace verbspp
