// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

namespace verbspp {

/// Receives what a destructor cannot return: the failed release of a verbs object.
///
/// Must not throw. It is called on the thread that destroys the object.
using destroy_failure_handler = void (*)(const error& failure) noexcept;

/// Replaces the handler and returns the one before; null restores the default, which writes one
/// line to stderr. Thread-safe.
destroy_failure_handler set_destroy_failure_handler(destroy_failure_handler handler) noexcept;

namespace detail {
/// Reports the failure of a release, if `errnum` is one.
void report_destroy(int errnum, const char* operation, const char* hint = nullptr) noexcept;
}  // namespace detail

}  // namespace verbspp
