// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

namespace verbspp {

/// A function that receives the errors that destructors cannot return: failures to release a verbs
/// object, or memory that was registered.
///
/// It is called on the thread that destroys the object, and must not throw.
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
