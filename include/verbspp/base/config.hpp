// SPDX-License-Identifier: Apache-2.0
/// \file
/// The language version that the library requires, the version of the library, and macros that hide
/// the differences between compilers.
#pragma once

#if defined(_MSVC_LANG) || (defined(__cplusplus) && __cplusplus < 202002L)
#error "verbspp needs C++20 (g++ 11, clang 14 or newer): use -std=c++20 (Meson: 'cpp_std=c++20')"
#endif

#define VERBSPP_VERSION_MAJOR 0
#define VERBSPP_VERSION_MINOR 1
#define VERBSPP_VERSION_PATCH 0

// Marks a parameter that the function's result refers to. clang then warns if the result outlives
// an argument that is a temporary.
#if defined(__clang__)
#define VERBSPP_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define VERBSPP_LIFETIMEBOUND
#endif

// Marks a class as a view: its objects refer to memory that they do not own. clang then warns if a
// view outlives the temporary that it refers to.
#if defined(__clang__)
#define VERBSPP_VIEW [[gsl::Pointer]]
#else
#define VERBSPP_VIEW
#endif

// clang's consumed analysis (-Wconsumed) reports uses of an object after the call that consumed it.
// Users of other compilers can find such uses with clang-tidy's bugprone-use-after-move.
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

// Marks a function of the data path, which is inlined regardless of the compiler's heuristics.
#define VERBSPP_DATA_PATH [[gnu::always_inline]] inline

// Marks a function whose own code does not allocate, lock, throw or wait; the driver that it calls
// may spin on a lock. Newer versions of clang check this (-Wfunction-effects). The macro belongs
// after noexcept.
#if defined(__has_cpp_attribute)
#if __has_cpp_attribute(clang::nonblocking)
#define VERBSPP_NONBLOCKING [[clang::nonblocking]]
#endif
#endif
#if !defined(VERBSPP_NONBLOCKING)
#define VERBSPP_NONBLOCKING
#endif
