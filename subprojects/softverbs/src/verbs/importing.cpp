// SPDX-License-Identifier: Apache-2.0
// The entry points that create contexts from command descriptors, and that import and unimport
// objects.
#include "faults/faults.hpp"
#include "machine/engine.hpp"
#include "verbs/command_file.hpp"
#include "verbs/device_context.hpp"
#include "verbs/export.hpp"
#include "verbs/failed.hpp"
#include "verbs/next_library.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

using namespace softverbs;

namespace {

/// Creates another structure for an object of the device. `find` finds the object, and returns 0 or
/// an errno value; `describe` initializes the structure. Returns null with errno set on failure.
template <typename Object, typename Find, typename Describe>
Object* import(device_context& device, structures<Object>& all, Find find, Describe describe) {
  if (!device.usable()) return failed<Object>(EIO);
  try {
    auto made = std::make_unique<Object>();
    const std::lock_guard held(device.engine().lock());
    Object* original = nullptr;
    if (const int error = find(original)) return failed<Object>(error);
    made->context = &device.verbs();
    made->handle = original->handle;
    made->original = original;
    describe(*made, *original);
    all.add(made.get());
    return made.release();
  } catch (const std::bad_alloc&) {
    return failed<Object>(ENOMEM);
  }
}

template <typename Object>
void unimport(device_context& device, structures<Object>& all, Object* structure) {
  if (!device.usable()) return;
  const std::lock_guard held(device.engine().lock());
  all.let_go(structure);
}

}  // namespace

SOFTVERBS_EXPORT ibv_context* ibv_import_device(int descriptor) {
  SOFTVERBS_FAULT(ibv_import_device, nullptr);
  if (is_command_file(descriptor)) {
    device_context* const opened = device_context::import(descriptor);
    return opened == nullptr ? nullptr : &opened->verbs();
  }
  auto* function = SOFTVERBS_NEXT(ibv_import_device);
  const without_soft_devices during;
  return function == nullptr ? failed<ibv_context>(EOPNOTSUPP) : function(descriptor);
}

SOFTVERBS_EXPORT ibv_pd* ibv_import_pd(ibv_context* verbs, std::uint32_t handle) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_import_pd)(verbs, handle);
  SOFTVERBS_FAULT(ibv_import_pd, verbs);
  device_context& device = device_context::of(verbs);
  if (!device.usable()) return failed<ibv_pd>(EIO);
  try {
    const std::lock_guard held(device.engine().lock());
    protection_domain* same = nullptr;
    for (protection_domain* each : device.file->domains) {
      if (each->handle != handle || each->is_parent_domain() || each->of->destroyed) continue;
      same = each;
      // If the program has unimported this structure, but the structure still exists, it is used
      // again.
      if (!each->unimported || each->context != verbs) continue;
      each->unimported = false;
      return each;
    }
    if (same == nullptr) return failed<ibv_pd>(ENOENT);
    auto made = std::make_unique<protection_domain>(same->of);
    made->context = verbs;
    made->handle = handle;
    made->number = same->number;
    device.file->domains.insert(made.get());
    return made.release();
  } catch (const std::bad_alloc&) {
    return failed<ibv_pd>(ENOMEM);
  }
}

SOFTVERBS_EXPORT void ibv_unimport_pd(ibv_pd* domain) {
  if (!is_soft(domain)) return SOFTVERBS_NEXT(ibv_unimport_pd)(domain);
  device_context& device = device_context::of(domain->context);
  if (!device.usable()) return;
  const std::lock_guard held(device.engine().lock());
  auto* ours = static_cast<protection_domain*>(domain);
  // Objects created from the structure may still refer to it, so it stays if the domain still
  // exists.
  ours->unimported = true;
  if (!ours->of->destroyed) return;
  device.file->domains.erase(ours);
  delete ours;
}

SOFTVERBS_EXPORT ibv_mr* ibv_import_mr(ibv_pd* domain, std::uint32_t handle) {
  if (!is_soft(domain)) return SOFTVERBS_NEXT(ibv_import_mr)(domain, handle);
  SOFTVERBS_FAULT(ibv_import_mr, domain->context);
  device_context& device = device_context::of(domain->context);
  const auto find = [&device, domain, handle](memory_region*& region) {
    if (static_cast<protection_domain*>(domain)->of->destroyed) return EINVAL;
    region = device.machine().regions.region_at(handle);
    const bool known = region != nullptr && device_context::of(region->context).file == device.file;
    return known ? 0 : ENOENT;
  };
  return import(device, device.file->regions, find,
                [domain](memory_region& made, const memory_region& of) {
                  made.pd = domain;
                  made.length = of.length;
                  made.lkey = of.lkey;
                  made.rkey = of.rkey;
                });
}

SOFTVERBS_EXPORT void ibv_unimport_mr(ibv_mr* region) {
  if (!is_soft(region)) return SOFTVERBS_NEXT(ibv_unimport_mr)(region);
  device_context& device = device_context::of(region->context);
  unimport(device, device.file->regions, static_cast<memory_region*>(region));
}

SOFTVERBS_EXPORT ibv_dm* ibv_import_dm(ibv_context* verbs, std::uint32_t handle) {
  if (!is_soft(verbs)) return SOFTVERBS_NEXT(ibv_import_dm)(verbs, handle);
  SOFTVERBS_FAULT(ibv_import_dm, verbs);
  device_context& device = device_context::of(verbs);
  const auto find = [&device, handle](device_memory*& memory) {
    // A linear search is sufficient: each object occupies at least a page of the limited device
    // memory, and programs import an object only a few times.
    const auto found = std::ranges::find_if(device.file->memories, [&](const device_memory* each) {
      return each->is_object() && each->handle == handle;
    });
    if (found == device.file->memories.end()) return ENOENT;
    memory = *found;
    return 0;
  };
  return import(device, device.file->memories, find,
                [](device_memory& made, const device_memory& of) {
                  made.memcpy_to_dm = of.memcpy_to_dm;
                  made.memcpy_from_dm = of.memcpy_from_dm;
                });
}

SOFTVERBS_EXPORT void ibv_unimport_dm(ibv_dm* memory) {
  if (!is_soft(memory)) return SOFTVERBS_NEXT(ibv_unimport_dm)(memory);
  device_context& device = device_context::of(memory->context);
  unimport(device, device.file->memories, static_cast<device_memory*>(memory));
}
