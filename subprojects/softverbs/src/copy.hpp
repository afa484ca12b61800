// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace softverbs {

/// Writes into memory that the program registered, the way a device does: it
/// need not be mapped any more (false then, and part of it may be written), and
/// no sanitizer watches the access, because the program may have marked it
/// untouchable until the completion. The only place that writes user memory.
bool copy_into_user_memory(void* destination, const void* source, std::size_t length) noexcept;

}  // namespace softverbs
