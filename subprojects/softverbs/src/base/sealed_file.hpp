// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace softverbs {

/// Returns the descriptor of a file in memory that contains this text, or -1 with errno. Reading
/// starts at the beginning of the text, and no process can change the file. The caller must close
/// the descriptor.
int open_sealed_file(std::string_view text) noexcept;

}  // namespace softverbs
