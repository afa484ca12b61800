// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

#include <cstdarg>
#include <cstddef>
#include <string_view>

#pragma GCC visibility push(hidden)
namespace verbspp::detail {

/// An error with text that is known only at run time, such as a peer's.
///
/// As an error owns nothing, the text is kept for the last 64 of these, in one place for the whole
/// process. The message of an older one says that its text has been replaced.
[[nodiscard]] error error_in_words(error_kind kind, const char* operation, std::string_view words,
                                   int errnum = 0) noexcept;

/// The number of characters that are kept of each text.
inline constexpr std::size_t longest_words = 400;

/// As above, with a printf format.
[[nodiscard, gnu::format(printf, 3, 4)]] error error_in_words_of(error_kind kind,
                                                                 const char* operation,
                                                                 const char* format, ...) noexcept;

}  // namespace verbspp::detail
#pragma GCC visibility pop
