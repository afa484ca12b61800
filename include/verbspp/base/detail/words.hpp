// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbspp/base/error.hpp>

#include <cstdarg>
#include <cstddef>
#include <string_view>

namespace verbspp::detail {

/// Creates an error with a text that is known only at run time, such as a message from the peer.
///
/// An error owns no memory, so the texts of the last `words_to_keep` such errors are stored in one
/// ring for the whole process. The message of an older error reports that its text has been
/// replaced.
[[nodiscard]] error error_in_words(error_kind kind, const char* operation, std::string_view words,
                                   int errnum = 0) noexcept;

/// The number of texts to store.
inline constexpr std::size_t words_to_keep = 1024;

/// The maximum number of characters to store for each text.
inline constexpr std::size_t longest_words = 400;

/// Like `error_in_words`, but formats the text as printf does.
[[nodiscard, gnu::format(printf, 3, 4)]] error error_in_words_of(error_kind kind,
                                                                 const char* operation,
                                                                 const char* format, ...) noexcept;

}  // namespace verbspp::detail
