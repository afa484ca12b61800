// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

#include <cstdarg>
#include <cstddef>
#include <string_view>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// An error in words that are known at run time only, such as a peer's.
///
/// An error owns nothing; so the words are kept for the last 64 of them, in one place for the whole
/// process. Who prints an older one is told that its words are gone.
[[nodiscard]] error error_in_words(error_kind kind, const char* operation, std::string_view words,
                                   int errnum = 0) noexcept;

/// Up to so many characters of each are kept.
inline constexpr std::size_t longest_words = 400;

/// The same, printed.
[[nodiscard, gnu::format(printf, 3, 4)]] error error_in_words_of(error_kind kind,
                                                                 const char* operation,
                                                                 const char* format, ...) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
