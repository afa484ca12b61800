// SPDX-License-Identifier: Apache-2.0
#include "queue_pair/receive_memory.hpp"

#include "base/user_memory.hpp"

#include <algorithm>

namespace softverbs {

bool receive_memory::fill(std::uint64_t offset, const std::byte* from,
                          std::uint32_t length) const noexcept {
  for (std::uint32_t entry = 0; entry < work_.count && length > 0; ++entry) {
    ibv_sge piece = work_.entries[entry];
    if (offset >= piece.length) {
      offset -= piece.length;
      continue;
    }
    piece.addr += offset;
    piece.length =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(piece.length - offset, length));
    std::byte* const to = regions_.local(domain_, piece.lkey, piece.addr, piece.length, true);
    if (to == nullptr || !user_memory::copy(to, from, piece.length)) return false;
    from += piece.length;
    length -= piece.length;
    offset = 0;
  }
  return true;
}

}  // namespace softverbs
