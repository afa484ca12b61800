// SPDX-License-Identifier: Apache-2.0
#include "memory/queue_array.hpp"

namespace softverbs {

queue_memory allocate_for_queue(protection_domain* domain, std::size_t size,
                                queue_content content) {
  void* memory = IBV_ALLOCATOR_USE_DEFAULT;
  if (domain != nullptr && domain->allocate != nullptr)
    memory = domain->allocate(domain, domain->allocators_context, size, queue_alignment,
                              static_cast<std::uint64_t>(content));
  if (memory == nullptr) throw std::bad_alloc();
  if (memory != IBV_ALLOCATOR_USE_DEFAULT) return {memory, domain};
  return {::operator new(size, std::align_val_t{queue_alignment}), nullptr};
}

void free_of_queue(const queue_memory& memory, queue_content content) noexcept {
  protection_domain* const domain = memory.domain;
  if (domain == nullptr)
    ::operator delete(memory.start, std::align_val_t{queue_alignment});
  else if (domain->free != nullptr)
    domain->free(domain, domain->allocators_context, memory.start,
                 static_cast<std::uint64_t>(content));
}

}  // namespace softverbs
