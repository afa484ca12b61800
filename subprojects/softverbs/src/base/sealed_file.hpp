// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace softverbs {

/// Returns the descriptor of a file in memory that contains this text and can't be changed by any
/// process: a read starts at the beginning of the text, and writes are refused. The caller has to
/// close it. Returns -1 with errno on failure.
int open_sealed_file(std::string_view text) noexcept;

}  // namespace softverbs
