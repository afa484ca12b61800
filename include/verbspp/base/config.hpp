// SPDX-License-Identifier: Apache-2.0
/// \file
/// The language version that the library requires, the version of the library, and macros that hide
/// the differences between compilers.
#pragma once

#if defined(_MSVC_LANG) || (defined(__cplusplus) && __cplusplus < 202002L)
#error "verbspp needs C++20: compile with -std=c++20 (Meson: default_options: 'cpp_std=c++20')"
#endif

#define VERBSPP_VERSION_MAJOR 0
#define VERBSPP_VERSION_MINOR 1
#define VERBSPP_VERSION_PATCH 0

// Marks a parameter that the result points into. clang then warns if the argument is a temporary.
#if defined(__clang__)
#define VERBSPP_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define VERBSPP_LIFETIMEBOUND
#endif

// Marks a class as a view: its objects refer to memory that they do not own. clang then warns if a
// view of a temporary is kept.
#if defined(__clang__)
#define VERBSPP_VIEW [[gsl::Pointer]]
#else
#define VERBSPP_VIEW
#endif

// The consumed analysis of clang (-Wconsumed) reports the use of an object after the call that
// consumed it. With other compilers, clang-tidy's bugprone-use-after-move finds such uses.
#if defined(__clang__)
#define VERBSPP_CONSUMABLE [[clang::consumable(unconsumed)]]
#define VERBSPP_CALLABLE_UNCONSUMED [[clang::callable_when("unconsumed", "unknown")]]
#define VERBSPP_CONSUMES [[clang::set_typestate(consumed)]]
#else
#define VERBSPP_CONSUMABLE
#define VERBSPP_CALLABLE_UNCONSUMED
#define VERBSPP_CONSUMES
#endif

// Keeps the symbols of an exception class visible, so that it is the same type in the library and
// in a program that is compiled with -fvisibility=hidden.
#define VERBSPP_EXCEPTION [[gnu::visibility("default")]]

// Marks a function that runs for every request. It is inlined regardless of the compiler's
// heuristics, down to the driver's function pointer.
#define VERBSPP_DATA_PATH [[gnu::always_inline]] inline

// Marks functions that do not allocate, lock, throw or wait; newer versions of clang check this
// (-Wfunction-effects). The macro is placed after noexcept.
#if defined(__has_cpp_attribute)
#if __has_cpp_attribute(clang::nonblocking)
#define VERBSPP_NONBLOCKING [[clang::nonblocking]]
#endif
#endif
#if !defined(VERBSPP_NONBLOCKING)
#define VERBSPP_NONBLOCKING
#endif
