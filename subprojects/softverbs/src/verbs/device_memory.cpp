// SPDX-License-Identifier: Apache-2.0
// The entry points for memory of the device.
#include "memory/device_memory.hpp"

#include "base/user_memory.hpp"
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "verbs/device_context.hpp"
#include "verbs/inline_calls.hpp"

#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

namespace softverbs {
namespace {

/// 0, or an errno if the device isn't usable or the memory doesn't have all of that.
int check(const device_memory& memory, std::uint64_t offset, std::size_t length) noexcept {
  if (!device_context::of(memory.context).usable()) return EIO;
  const bool fits = offset <= memory.bytes.size() && length <= memory.bytes.size() - offset;
  return fits ? 0 : EFAULT;
}

int copy_to(ibv_dm* to, std::uint64_t offset, const void* from, std::size_t length) {
  SOFTVERBS_FAULT(ibv_memcpy_to_dm, to->context);
  const auto& memory = *static_cast<device_memory*>(to);
  if (const int error = check(memory, offset, length)) return error;
  return user_memory::copy(memory.bytes.data() + offset, from, length) ? 0 : EFAULT;
}

int copy_from(void* to, ibv_dm* from, std::uint64_t offset, std::size_t length) {
  SOFTVERBS_FAULT(ibv_memcpy_from_dm, from->context);
  const auto& memory = *static_cast<device_memory*>(from);
  if (const int error = check(memory, offset, length)) return error;
  return user_memory::copy(to, memory.bytes.data() + offset, length) ? 0 : EFAULT;
}

template <typename Result>
Result* failed(int error) noexcept {
  errno = error;
  return nullptr;
}

}  // namespace

ibv_dm* inline_calls::alloc_dm(ibv_context* verbs, ibv_alloc_dm_attr* attributes) {
  SOFTVERBS_FAULT(ibv_alloc_dm, verbs);
  device_context& device = device_context::of(verbs);
  if (!device.usable()) return failed<ibv_dm>(EIO);
  constexpr std::uint32_t most_alignment = 63;
  const std::size_t most = device.device().most().device_memory;
  if (attributes->comp_mask != 0 || attributes->length == 0 || attributes->length > most ||
      attributes->log_align_req > most_alignment)
    return failed<ibv_dm>(EINVAL);
  try {
    auto memory = std::make_unique<device_memory>();
    const std::lock_guard held(device.engine().lock());
    std::size_t used = 0;
    for (const device_memory* other : device.memories) used += other->bytes.size();
    if (attributes->length > most - used) return failed<ibv_dm>(ENOMEM);
    device.memories.insert(memory.get());
    memory->bytes = device.machine().device_memory.take(
        attributes->length, std::size_t{1} << attributes->log_align_req);
    if (memory->bytes.empty()) {
      device.memories.erase(memory.get());
      return failed<ibv_dm>(ENOMEM);
    }
    memory->context = verbs;
    memory->memcpy_to_dm = copy_to;
    memory->memcpy_from_dm = copy_from;
    return memory.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_dm>(ENOMEM);
  }
}

int inline_calls::free_dm(ibv_dm* memory) {
  SOFTVERBS_FAULT(ibv_free_dm, memory->context);
  device_context& device = device_context::of(memory->context);
  if (!device.usable()) return EIO;
  auto* ours = static_cast<device_memory*>(memory);
  {
    const std::lock_guard held(device.engine().lock());
    if (ours->regions != 0) return EBUSY;
    device.machine().device_memory.give_back(ours->bytes);
    device.memories.erase(ours);
  }
  delete ours;
  return 0;
}

}  // namespace softverbs
