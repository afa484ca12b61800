// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the library needs from the compiler, and the macros that hide what compilers differ in.
#pragma once

#if defined(_MSVC_LANG) || (defined(__cplusplus) && __cplusplus < 202002L)
#error "verbspp needs C++20: compile with -std=c++20 (Meson: default_options: 'cpp_std=c++20')"
#endif

#define VERBSPP_VERSION_MAJOR 0
#define VERBSPP_VERSION_MINOR 1
#define VERBSPP_VERSION_PATCH 0

// Marks a parameter that the result points into; clang then warns when a temporary is given.
#if defined(__clang__)
#define VERBSPP_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define VERBSPP_LIFETIMEBOUND
#endif

// Marks a class that views what others own: what it was made from must live on, it need not itself.
#if defined(__clang__)
#define VERBSPP_VIEW [[gsl::Pointer]]
#else
#define VERBSPP_VIEW
#endif

// The consumed analysis of clang (-Wconsumed) reports the use of an object after the call that
// consumed it; other compilers leave that to clang-tidy's bugprone-use-after-move.
#if defined(__clang__)
#define VERBSPP_CONSUMABLE [[clang::consumable(unconsumed)]]
#define VERBSPP_CALLABLE_UNCONSUMED [[clang::callable_when("unconsumed", "unknown")]]
#define VERBSPP_CONSUMES [[clang::set_typestate(consumed)]]
#else
#define VERBSPP_CONSUMABLE
#define VERBSPP_CALLABLE_UNCONSUMED
#define VERBSPP_CONSUMES
#endif

// An exception is the same type in the library and in a program that hides its own symbols.
#define VERBSPP_EXCEPTION [[gnu::visibility("default")]]

// What runs once per request: inlined whatever the compiler's heuristics say, down to the driver's
// function pointer.
#define VERBSPP_DATA_PATH [[gnu::always_inline]] inline

// What neither allocates nor locks nor throws nor waits, which newer versions of clang check
// (-Wfunction-effects). It stands behind noexcept.
#if defined(__has_cpp_attribute)
#if __has_cpp_attribute(clang::nonblocking)
#define VERBSPP_NONBLOCKING [[clang::nonblocking]]
#endif
#endif
#if !defined(VERBSPP_NONBLOCKING)
#define VERBSPP_NONBLOCKING
#endif
