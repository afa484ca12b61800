// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

namespace verbspp {

/// Receives the errors that destructors cannot return: failures to release a verbs object.
///
/// Must not throw. Called on the thread that destroys the object.
using destroy_failure_handler = void (*)(const error& failure) noexcept;

/// Replaces the handler and returns the previous one. Null restores the default, which writes one
/// line to stderr. Thread-safe.
destroy_failure_handler set_destroy_failure_handler(destroy_failure_handler handler) noexcept;

namespace detail {
/// Reports the failed release of an object; does nothing if `errnum` is 0.
void report_destroy(int errnum, const char* operation, const char* hint = nullptr) noexcept;
}  // namespace detail

}  // namespace verbspp
