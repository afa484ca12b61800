// SPDX-License-Identifier: Apache-2.0
// The entry points for memory regions and memory windows.
#include "base/user_memory.hpp"
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "memory/buffer_mapping.hpp"
#include "memory/device_memory.hpp"
#include "memory/protection_domain.hpp"
#include "queue_pair/queue_pair.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/failed.hpp"
#include "verbs/inline_calls.hpp"
#include "verbs/nesting.hpp"
#include "verbs/next_library.hpp"
#include "verbs/xrc.hpp"

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace softverbs;

namespace {

/// Adds a region, and assigns its keys. Before that, calls `prepare` under the engine's lock;
/// `prepare` returns 0 or an errno value. Returns null with errno set on failure.
template <typename Prepare>
ibv_mr* add_region(device_context& device, ibv_pd* domain, const memory_region& what,
                   Prepare prepare) {
  user_memory::look_again();
  user_memory::prepare_thread();
  try {
    auto region = std::make_unique<memory_region>(what);
    region->original = region.get();
    region->context = domain->context;
    region->pd = domain;
    const std::lock_guard held(device.engine().lock());
    if (static_cast<protection_domain*>(domain)->of->destroyed) return failed<ibv_mr>(EINVAL);
    if (device.file->regions.objects() >= device.device().most().memory_regions)
      return failed<ibv_mr>(ENOMEM);
    if (const int error = prepare(*region)) return failed<ibv_mr>(error);
    device.file->regions.add(region.get());
    if (const int error = device.machine().regions.add(*region)) {
      device.file->regions.take_back(region.get());
      return failed<ibv_mr>(error);
    }
    ++static_cast<protection_domain*>(domain)->children;
    if (region->device != nullptr) ++region->device->regions;
    return region.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_mr>(ENOMEM);
  }
}

ibv_mr* add_region(device_context& device, ibv_pd* domain, const memory_region& what) {
  return add_region(device, domain, what, [](memory_region&) { return 0; });
}

ibv_mr* register_memory(ibv_pd* domain, void* address, std::size_t length, std::uint64_t iova,
                        unsigned access) {
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return failed<ibv_mr>(EIO);
  if (const int error = check_registration(address, length, iova, access))
    return failed<ibv_mr>(error);
  memory_region what{};
  what.addr = address;
  what.memory = static_cast<std::byte*>(address);
  what.length = length;
  what.iova = iova;
  what.access = access;
  return add_region(device, domain, what);
}

ibv_mr* register_buffer(ibv_pd* domain, std::uint64_t offset, std::size_t length,
                        std::uint64_t iova, int descriptor, unsigned access) {
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return failed<ibv_mr>(EIO);
  // The rights that the kernel supports for regions of dma-bufs: no windows, and no on-demand
  // paging.
  constexpr unsigned rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  if (const int error = check_range(offset, length, iova)) return failed<ibv_mr>(error);
  if (const int error = check_rights(access, rights, rights)) return failed<ibv_mr>(error);
  try {
    const auto buffer = std::make_shared<buffer_mapping>();
    const bool writes = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
    if (const int error = buffer->map(descriptor, offset, length, writes))
      return failed<ibv_mr>(error);
    memory_region what{};
    // rdma-core returns the offset in the buffer as the address.
    what.addr = reinterpret_cast<void*>(static_cast<std::uintptr_t>(offset));
    what.memory = buffer->start();
    what.buffer = buffer;
    what.length = length;
    what.iova = iova;
    what.access = access;
    return add_region(device, domain, what);
  } catch (const std::bad_alloc&) {
    return failed<ibv_mr>(ENOMEM);
  }
}

/// Hides the region that a structure refers to, and waits until it is no longer in use. Returns 0
/// if the caller now has exclusive access to the region. Otherwise returns an errno value, and the
/// region is shown as before.
int take_out(device_context& device, const memory_region& standing, memory_region*& region) {
  softverbs::machine& machine = device.machine();
  {
    const std::lock_guard held(machine.engine.lock());
    region = standing.object();
    if (region == nullptr) return ENOENT;
    if (region->windows != 0 || region->is_leaving) return EBUSY;
    region->is_leaving = true;
    machine.regions.hide(*region);
  }
  if (machine.wait_for_users({announcements::any, region->handle})) return 0;
  const std::lock_guard held(machine.engine.lock());
  region->is_leaving = false;
  machine.regions.show(*region);
  return EBUSY;
}

/// `take_out` has hidden a region. The destructor shows it again, with its current properties.
class shown_again {
 public:
  shown_again(region_table& table, memory_region& region) noexcept
      : table_(table), region_(region) {}
  shown_again(const shown_again&) = delete;
  shown_again& operator=(const shown_again&) = delete;
  ~shown_again() {
    region_.is_leaving = false;
    table_.show(region_);
  }

 private:
  region_table& table_;
  memory_region& region_;
};

/// Implements ibv_rereg_mr. The keys don't change; after a failure, nothing has changed.
int reregister(memory_region& region, int flags, ibv_pd* domain, void* address, std::size_t length,
               int access) noexcept {
  const auto given = [flags](int change) { return (flags & change) != 0; };
  const auto refused = [](int code, int error) {
    errno = error;
    return code;
  };
  constexpr int known =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  const bool moves = given(IBV_REREG_MR_CHANGE_TRANSLATION);
  // Regions of dma-bufs, and structures of imported regions, can't be reregistered.
  if (region.buffer != nullptr || region.original != &region || flags == 0 ||
      (flags & ~known) != 0 || (access != 0 && !given(IBV_REREG_MR_CHANGE_ACCESS)) ||
      (given(IBV_REREG_MR_CHANGE_PD) && (domain == nullptr || domain->context != region.context)))
    return refused(IBV_REREG_MR_ERR_INPUT, EINVAL);
  device_context& device = device_context::of(region.context);
  if (!device.usable()) return refused(IBV_REREG_MR_ERR_CMD, EIO);
  // Regions of device memory can't be reregistered, either, as in the kernel.
  if (region.device != nullptr) return refused(IBV_REREG_MR_ERR_CMD, EINVAL);
  memory_region* taken = nullptr;
  if (const int error = take_out(device, region, taken))
    return refused(IBV_REREG_MR_ERR_INPUT, error);
  const std::lock_guard held(device.engine().lock());
  const shown_again after(device.machine().regions, region);
  if (region.windows != 0) return refused(IBV_REREG_MR_ERR_INPUT, EBUSY);
  memory_region next = region;
  if (moves) {
    next.addr = address;
    next.memory = static_cast<std::byte*>(address);
    next.length = length;
    next.iova = reinterpret_cast<std::uintptr_t>(address);
  }
  if (given(IBV_REREG_MR_CHANGE_PD)) next.pd = domain;
  if (given(IBV_REREG_MR_CHANGE_ACCESS)) next.access = static_cast<unsigned>(access);
  if (static_cast<protection_domain*>(next.pd)->of->destroyed)
    return refused(IBV_REREG_MR_ERR_CMD, EINVAL);
  if (const int error = check_registration(next.addr, next.length, next.iova, next.access))
    return refused(IBV_REREG_MR_ERR_CMD, error);
  --static_cast<protection_domain*>(region.pd)->children;
  ++static_cast<protection_domain*>(next.pd)->children;
  region = next;
  return 0;
}

/// A range of memory to prefetch.
struct advised {
  std::uintptr_t start;
  std::size_t length;
};

/// Finds the memory of one entry of ibv_advise_mr. Returns 0 or an errno value. Requires the
/// engine's lock.
int find(region_table& regions, const ibv_pd* domain, const ibv_sge& piece, bool writes,
         advised& memory) noexcept {
  const memory_region* const region = regions.region_of(piece.lkey);
  if (region == nullptr || (region->access & IBV_ACCESS_ON_DEMAND) == 0) return ENOENT;
  if (!same_domain(region->pd, domain)) return EPERM;
  if (writes && (region->access & IBV_ACCESS_LOCAL_WRITE) == 0) return EPERM;
  const std::byte* start = regions.local(domain, piece.lkey, piece.addr, piece.length, writes);
  // The address is null if the range is out of bounds.
  memory = {reinterpret_cast<std::uintptr_t>(start), start == nullptr ? 0 : piece.length};
  return 0;
}

}  // namespace

SOFTVERBS_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, std::size_t length,
                                          std::uint64_t iova, unsigned access) {
  if (!is_soft(domain))
    return SOFTVERBS_NEXT(ibv_reg_mr_iova2)(domain, address, length, iova, access);
  // Programs usually call this function through the macros ibv_reg_mr and ibv_reg_mr_iova, so the
  // faults with the names of these macros apply.
  const bool moved = iova != reinterpret_cast<std::uintptr_t>(address);
  const auto called =
      moved ? faults::number_of("ibv_reg_mr_iova") : faults::number_of("ibv_reg_mr");
  if (const auto failure = faults::strike(called, domain->context)) return *failure;
  return register_memory(domain, address, length, iova, access);
}

SOFTVERBS_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* domain, void* address, std::size_t length,
                                         std::uint64_t iova, int access) {
  if (!is_soft(domain))
    return SOFTVERBS_NEXT(ibv_reg_mr_iova)(domain, address, length, iova, access);
  SOFTVERBS_FAULT(ibv_reg_mr_iova, domain->context);
  return register_memory(domain, address, length, iova, static_cast<unsigned>(access));
}

SOFTVERBS_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t length, int access) {
  if (!is_soft(domain)) return SOFTVERBS_NEXT(ibv_reg_mr)(domain, address, length, access);
  SOFTVERBS_FAULT(ibv_reg_mr, domain->context);
  return register_memory(domain, address, length, reinterpret_cast<std::uintptr_t>(address),
                         static_cast<unsigned>(access));
}

SOFTVERBS_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t length,
                                           std::uint64_t iova, int descriptor, int access) {
  if (!is_soft(domain))
    return SOFTVERBS_NEXT(ibv_reg_dmabuf_mr)(domain, offset, length, iova, descriptor, access);
  SOFTVERBS_FAULT(ibv_reg_dmabuf_mr, domain->context);
  return register_buffer(domain, offset, length, iova, descriptor, static_cast<unsigned>(access));
}

SOFTVERBS_EXPORT int ibv_rereg_mr(ibv_mr* region, int flags, ibv_pd* domain, void* address,
                                  std::size_t length, int access) {
  if (!is_soft(region))
    return SOFTVERBS_NEXT(ibv_rereg_mr)(region, flags, domain, address, length, access);
  SOFTVERBS_FAULT(ibv_rereg_mr, region->context);
  return reregister(*static_cast<memory_region*>(region), flags, domain, address, length, access);
}

SOFTVERBS_EXPORT int ibv_dereg_mr(ibv_mr* region) {
  if (!is_soft(region)) return SOFTVERBS_NEXT(ibv_dereg_mr)(region);
  SOFTVERBS_FAULT(ibv_dereg_mr, region->context);
  device_context& device = device_context::of(region->context);
  if (!device.usable()) return EIO;
  auto* ours = static_cast<memory_region*>(region);
  memory_region* original = nullptr;
  if (const int error = take_out(device, *ours, original)) return error;
  // The variable is declared before the lock is taken, so that the buffer is unmapped without the
  // lock.
  std::shared_ptr<const buffer_mapping> buffer;
  {
    const std::lock_guard held(device.engine().lock());
    if (original->windows != 0) {
      original->is_leaving = false;
      device.machine().regions.show(*original);
      return EBUSY;
    }
    device.machine().regions.remove(*original);
    --static_cast<protection_domain*>(original->pd)->children;
    if (original->device != nullptr) --original->device->regions;
    buffer = std::move(original->buffer);
    device.file->regions.destroy(ours);
  }
  return 0;
}

ibv_mr* inline_calls::reg_dm_mr(ibv_pd* domain, ibv_dm* memory, std::uint64_t offset,
                                std::size_t length, unsigned access) {
  SOFTVERBS_FAULT(ibv_reg_dm_mr, domain->context);
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return failed<ibv_mr>(EIO);
  constexpr unsigned rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED;
  if (memory->context != domain->context || (access & IBV_ACCESS_ZERO_BASED) == 0)
    return failed<ibv_mr>(EINVAL);
  if (const int error = check_rights(access, rights, rights)) return failed<ibv_mr>(error);
  memory_region what{};
  what.length = length;
  what.access = access;
  return add_region(device, domain, what, [memory, offset](memory_region& region) {
    device_memory* const object = static_cast<device_memory*>(memory)->object();
    if (object == nullptr || offset > object->bytes.size() ||
        region.length > object->bytes.size() - offset)
      return EINVAL;
    region.memory = object->bytes.data() + offset;
    region.device = object;
    return 0;
  });
}

int inline_calls::advise_mr(ibv_pd* domain, ibv_advise_mr_advice advice, std::uint32_t flags,
                            ibv_sge* list, std::uint32_t count) {
  SOFTVERBS_FAULT(ibv_advise_mr, domain->context);
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return EIO;
  const bool writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  const bool faults = writes || advice == IBV_ADVISE_MR_ADVICE_PREFETCH;
  if (!faults && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0) return EINVAL;
  // The kernel has the same limit, because it gets the list as an attribute with a 16-bit length.
  if (count > UINT16_MAX / sizeof(ibv_sge)) return EINVAL;
  try {
    std::vector<advised> memories(count);
    {
      const std::lock_guard held(device.engine().lock());
      for (std::uint32_t at = 0; at < count; ++at)
        if (const int error =
                find(device.machine().regions, domain, list[at], writes, memories[at]))
          return error;
    }
    // Without this flag, failures to prefetch are not reported. On other devices, they would occur
    // asynchronously, after the call.
    const bool tells = (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0;
    for (const advised& memory : memories) {
      const int error = memory.start == 0 ? EFAULT
                        : faults          ? bring_in(memory.start, memory.length, writes)
                                          : 0;
      if (tells && error != 0) return error;
    }
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

ibv_mw* inline_calls::alloc_mw(ibv_pd* domain, ibv_mw_type type) {
  SOFTVERBS_FAULT(ibv_alloc_mw, domain->context);
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return failed<ibv_mw>(EIO);
  if (!device.device().description().has_windows) return failed<ibv_mw>(EOPNOTSUPP);
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return failed<ibv_mw>(EINVAL);
  try {
    auto window = std::make_unique<memory_window>();
    window->context = domain->context;
    window->pd = domain;
    window->type = type;
    const std::lock_guard held(device.engine().lock());
    if (static_cast<protection_domain*>(domain)->of->destroyed) return failed<ibv_mw>(EINVAL);
    if (device.windows.size() >= device.device().most().memory_regions)
      return failed<ibv_mw>(ENOMEM);
    device.windows.insert(window.get());
    if (const int error = device.machine().regions.add(*window)) {
      device.windows.erase(window.get());
      return failed<ibv_mw>(error);
    }
    ++static_cast<protection_domain*>(domain)->children;
    return window.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_mw>(ENOMEM);
  }
}

int inline_calls::dealloc_mw(ibv_mw* window) {
  SOFTVERBS_FAULT(ibv_dealloc_mw, window->context);
  device_context& device = device_context::of(window->context);
  if (!device.usable()) return EIO;
  const std::lock_guard held(device.engine().lock());
  auto* ours = static_cast<memory_window*>(window);
  device.machine().regions.remove(*ours);
  device.windows.erase(ours);
  --static_cast<protection_domain*>(ours->pd)->children;
  delete ours;
  return 0;
}

// Binds a window, which must be of type 1. The request is posted here, not by the program.
int inline_calls::bind_mw(ibv_qp* pair, ibv_mw* window, ibv_mw_bind* binding) {
  SOFTVERBS_FAULT(ibv_bind_mw, pair->context);
  if (pair->qp_type == IBV_QPT_XRC_RECV) return refuse_request(*pair);
  auto& ours = *static_cast<queue_pair*>(pair);
  ibv_send_wr request{};
  request.wr_id = binding->wr_id;
  request.send_flags = binding->send_flags;
  request.opcode = IBV_WR_BIND_MW;
  request.bind_mw = {window, ibv_inc_rkey(window->rkey), binding->bind_info};
  const session_guard posting_alone(ours.building());
  if (posting_alone.refused()) return refuse_nested_post();
  if (!ours.usable()) return EIO;
  {
    const std::lock_guard held(ours.lock());
    const int error = ours.takes_sends() ? ours.requests.post(request) : EINVAL;
    if (error != 0) return error;
    window->rkey = request.bind_mw.rkey;
  }
  ours.engine().ring(ours);
  return 0;
}
