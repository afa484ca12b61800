// SPDX-License-Identifier: Apache-2.0
// The entry points for device memory.
#include "memory/device_memory.hpp"

#include "base/user_memory.hpp"
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "verbs/device_context.hpp"
#include "verbs/failed.hpp"
#include "verbs/inline_calls.hpp"

#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

namespace softverbs {
namespace {

/// The unit, in bytes, in which network cards access their memory.
constexpr std::size_t word_bytes = 4;

/// Finds the address of a part of the memory. Returns 0 or an errno value. The device must be
/// usable (otherwise EIO), and the part must lie within the memory, and consist of whole words.
int find(const ibv_dm& memory, std::uint64_t offset, std::size_t length, std::byte*& place) {
  device_context& device = device_context::of(memory.context);
  if (!device.usable()) return EIO;
  const std::lock_guard held(device.engine().lock());
  const device_memory* const object = static_cast<const device_memory&>(memory).object();
  if (object == nullptr || offset > object->bytes.size() || length > object->bytes.size() - offset)
    return EFAULT;
  place = object->bytes.data() + offset;
  return offset % word_bytes == 0 && length % word_bytes == 0 ? 0 : EINVAL;
}

int copy_to(ibv_dm* to, std::uint64_t offset, const void* from, std::size_t length) {
  SOFTVERBS_FAULT(ibv_memcpy_to_dm, to->context);
  std::byte* place = nullptr;
  if (const int error = find(*to, offset, length, place)) return error;
  return user_memory::copy(place, from, length) ? 0 : EFAULT;
}

int copy_from(void* to, ibv_dm* from, std::uint64_t offset, std::size_t length) {
  SOFTVERBS_FAULT(ibv_memcpy_from_dm, from->context);
  std::byte* place = nullptr;
  if (const int error = find(*from, offset, length, place)) return error;
  return user_memory::copy(to, place, length) ? 0 : EFAULT;
}

}  // namespace

ibv_dm* inline_calls::alloc_dm(ibv_context* verbs, ibv_alloc_dm_attr* attributes) {
  SOFTVERBS_FAULT(ibv_alloc_dm, verbs);
  verbs = device_context::in_this_process(verbs);
  if (verbs == nullptr) return nullptr;
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
    for (const device_memory* other : device.file->memories)
      if (other->is_object()) used += other->bytes.size();
    if (attributes->length > most - used) return failed<ibv_dm>(ENOMEM);
    device.file->memories.add(memory.get());
    memory->bytes = device.machine().device_memory.take(
        attributes->length, std::size_t{1} << attributes->log_align_req);
    if (memory->bytes.empty()) {
      device.file->memories.take_back(memory.get());
      return failed<ibv_dm>(ENOMEM);
    }
    static std::uint32_t last_handle = 0;
    memory->handle = ++last_handle;
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
  const std::lock_guard held(device.engine().lock());
  const device_memory* const object = ours->object();
  if (object == nullptr) return ENOENT;
  if (object->regions != 0) return EBUSY;
  device.machine().device_memory.give_back(object->bytes);
  device.file->memories.destroy(ours);
  return 0;
}

}  // namespace softverbs
