// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace softverbs {

/// A file in memory that has this text and can't be changed, whoever gets its descriptor: reading
/// gives the text from its start, writing is refused. To be closed by the caller; -1 with errno.
int open_sealed_file(std::string_view text) noexcept;

}  // namespace softverbs
